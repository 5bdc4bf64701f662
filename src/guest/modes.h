/*
 * The modes of the guest (proto/guest.h). Each function runs its mode to the end. It returns only
 * errors that it could not report to the relay in a frame.
 */
#pragma once

#include "lib/base/err.h"

/* argv: the arguments after the mode's name, NULL-terminated. */
int guest_exec(char **argv, struct err *err);
int guest_dial(char **argv, struct err *err);
int guest_listen(char **argv, struct err *err);
int guest_copy_in(char **argv, struct err *err);
int guest_copy_out(char **argv, struct err *err);
int guest_files(char **argv, struct err *err);
int guest_reap(char **argv, struct err *err);
int guest_init(char **argv, struct err *err);

/* Fails for root in a container that GUEST_NO_ROOT marks. */
int guest_check_user(struct err *err);

/* Replaces stdio by /dev/null or closes it, because nobody reads it any more. */
void stdio_close(void);

_noreturn_ void guest_main(char **argv);
