/*
 * Classifies the errors of Docker and Podman. One table maps kind of object, flavour, status and
 * message to a reason (reason.h); another table gives each reason its error code and hint. An
 * answer that no row matches is ERR_ENGINE with the engine's message.
 */
#pragma once

#include <stddef.h>

#include "dockerapi/docker.h"

struct docker_answer {
    enum docker_flavour flavour;
    const char *path; /* of the request, without version */
    int status;
    const char *body; /* unchanged: JSON, text or anything; not NUL-terminated */
    size_t len;
};

/* Fills err, sets *ret_reason (may be NULL), returns -err->code. */
int docker_classify(const struct docker_answer *a, enum docker_reason *ret_reason, struct err *err);

/* An error without an answer of the engine (a broken connection), with the reason's code and
 * hint. */
int docker_reason_err(enum docker_reason reason, struct err *err, const char *fmt, ...)
    _printf_(3, 4);

/* The engine's message for people: one printable line of limited length. Never NULL. */
char *docker_words(const char *text, size_t len);
