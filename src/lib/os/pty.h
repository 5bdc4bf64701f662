/*
 * Pseudo terminals of the devpts at /dev/pts of the caller's mount namespace. Hostile code may have
 * changed that folder, so every result is checked.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* Both ends O_CLOEXEC | O_NOCTTY; the slave comes from the master (TIOCGPTPEER), never by name. */
int pty_open(uint16_t rows, uint16_t cols, int *ret_master, int *ret_slave, struct err *err);
int pty_resize(int fd, uint16_t rows, uint16_t cols, struct err *err);
