/*
 * The ways in which the guest is started (proto/guest.h). Each runs to its end; an error is one
 * that the relay could not be told by a frame.
 */
#pragma once

#include "lib/base/err.h"

/* argv: what follows the mode's name, NULL-terminated. */
int guest_exec(char **argv, struct err *err);
int guest_dial(char **argv, struct err *err);
int guest_listen(char **argv, struct err *err);
int guest_copy_in(char **argv, struct err *err);
int guest_copy_out(char **argv, struct err *err);
int guest_reap(char **argv, struct err *err);
int guest_init(char **argv, struct err *err);

/* /dev/null, or nothing, in place of stdio: nobody listens any more. */
void stdio_close(void);

_noreturn_ void guest_main(char **argv);
