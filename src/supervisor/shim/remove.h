/*
 * `ripcord-shim remove NAME UID GID`: removes a tree with files of a user's subordinate ids, which
 * that user cannot remove directly. It works in a user namespace where these ids are mapped.
 * Descriptor SUP_FD_CONTROL is the folder that holds NAME. Exit status 0 if the tree is gone; else
 * the reason is on stderr.
 */
#pragma once

int remove_main(char **args);
