/*
 * The error object. One object travels from the deepest system call to the user. It says what
 * failed, on which object, why (in the words of the system), and what to do.
 *
 * Contract: a function returns >= 0 and leaves *err untouched, or returns -ERR_X and fills *err
 * exactly once. Callers add context on the way up with err_wrap() ("outer: inner: reason"). err may
 * be NULL when the caller only wants the code. The function that declares an err owns it and
 * releases it with _cleanup_err_.
 */
#pragma once

#include <stdarg.h>
#include <stdbool.h>

#include "lib/base/macro.h"

enum err_code {
    ERR_NONE = 0,
    ERR_SYSTEM,
    ERR_INVALID,
    ERR_UNAUTHORIZED,
    ERR_DENIED,
    ERR_NOT_FOUND,
    ERR_CONFLICT,
    ERR_LIMIT,
    ERR_UNSUPPORTED,
    ERR_ENGINE,
    ERR_TIMEOUT,
    ERR_CODE_MAX,
};

struct err {
    enum err_code code; /* stable and machine-readable */
    int errnum;         /* 0 unless a system call failed */
    char *msg;          /* owned; "outer: inner: reason" */
    char *hint;         /* owned; what the user can do, or NULL */
    const char
        *part;       /* the kind of what is wrong in a request: field, parameter, header; or NULL */
    char *part_name; /* owned; which one */
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }
#define _cleanup_err_ __attribute__((cleanup(err_done)))

void err_done(struct err *err);

/* Fills *err and returns -code. A message that begins with "field 'x'", "query parameter 'x'" or
 * "header 'x'" sets part and part_name; so does a context of err_wrap(). */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) _printf_(3, 4);
int err_setv(struct err *err, enum err_code code, const char *fmt, va_list ap) _printf_(3, 0);

/* A failed system call: sets ERR_SYSTEM and errnum, and appends ": strerror". A caller that knows
 * the meaning of the errno may set a better code. */
int err_sys(struct err *err, int errnum, const char *fmt, ...) _printf_(3, 4);

/* Prepends "context: " and returns -err->code, so that `return err_wrap(err, …)` passes a failure
 * on. */
int err_wrap(struct err *err, const char *fmt, ...) _printf_(2, 3);

/* Sets the hint (a full sentence), replacing any; returns -err->code. */
int err_hint(struct err *err, const char *fmt, ...) _printf_(2, 3);

/* Moves the error: *dst must be empty, *src is empty afterwards. Returns -code. dst may be NULL. */
int err_move(struct err *dst, struct err *src);
int err_copy(struct err *dst, const struct err *src);

/* The one table of names, HTTP statuses and exit statuses. err_code_from_name() returns ERR_SYSTEM
 * for an unknown name. */
const char *err_code_name(enum err_code code);
enum err_code err_code_from_name(const char *name);
int err_code_http(enum err_code code);
int err_code_exit(enum err_code code);
