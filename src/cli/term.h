/*
 * The terminal of this program. It is in raw mode while a command uses it, and is restored on every
 * way out: return, exit, and the signals that we handle.
 */
#pragma once

#include <stdbool.h>

/* Switches standard input to raw mode; false when it is not a terminal. */
bool term_raw(void);
void term_restore(void); /* does nothing without term_raw() */
/* The size of the terminal on stdin, stdout or stderr. */
bool term_size(unsigned *rows, unsigned *cols);
