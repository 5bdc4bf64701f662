/*
 * A hint to the file system: the folders made below this one have nothing to do with each other.
 */
#pragma once

void ext4_spread_children(int dirfd);
