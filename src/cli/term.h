/*
 * Our own terminal: raw while a command has it, and as it was on every way out (return, exit,
 * signals that we handle).
 */
#pragma once

#include <stdbool.h>

/* Puts standard input into raw mode; false when it is no terminal. */
bool term_raw(void);
void term_restore(void); /* fine to call without term_raw() */
/* The size of the terminal on stdin, stdout or stderr. */
bool term_size(unsigned *rows, unsigned *cols);
