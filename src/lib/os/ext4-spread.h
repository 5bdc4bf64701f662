/*
 * A hint to ext4: the folders below this one are unrelated, so it should spread them over the disk.
 * Other file systems ignore it.
 */
#pragma once

void ext4_spread_children(int dirfd);
