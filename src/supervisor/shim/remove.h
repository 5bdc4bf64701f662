/*
 * `ripcord-shim remove NAME UID GID`: removes a tree that holds files of a user's subordinate ids,
 * which that user cannot remove: from inside a user namespace where they are mapped. The folder
 * that holds NAME is descriptor SUP_FD_CONTROL. Exit status 0 when it is gone; the reason goes to
 * stderr.
 */
#pragma once

int remove_main(char **args);
