/*
 * From what an engine answered to our error: one table of rows (kind of object, flavour, status,
 * words) gives the reason, one table gives each reason its code and hint. What is in no row is
 * ERR_ENGINE with the engine's words.
 */
#pragma once

#include <stddef.h>

#include "dockerapi/docker.h"

struct docker_answer {
    enum docker_flavour flavour;
    const char *path; /* of the request, without version */
    int status;
    const char *body; /* as it came: JSON, text or anything; not NUL-terminated */
    size_t len;
};

/* Fills err, sets *ret_reason (may be NULL), returns -err->code. */
int docker_classify(const struct docker_answer *a, enum docker_reason *ret_reason, struct err *err);

/* An error for a reason that is not an answer (the connection broke): code and hint from the table.
 */
int docker_reason_err(enum docker_reason reason, struct err *err, const char *fmt, ...)
    _printf_(3, 4);

/* The engine's words for people: one line, printable, not endless. Never NULL. */
char *docker_words(const char *text, size_t len);
