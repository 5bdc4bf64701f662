/*
 * One request and its answer, on its own connection. The functions of docker.h are built on this;
 * only files of dockerapi/ use it.
 */
#pragma once

#include "dockerapi/docker.h"
#include "lib/http/wire/client.h"

struct exchange {
    struct http_client http;
    const struct docker *d; /* NULL: not connected */
    char *target;           /* path with the version prefix */
    const char *path;       /* points into target, behind the prefix */
    uint64_t began;
};
#define EXCHANGE_INIT                                                                              \
    {                                                                                              \
        .http = {.fd = -1, .stop_fd = -1 }                                                         \
    }
#define _cleanup_exchange_ __attribute__((cleanup(exchange_done)))
void exchange_done(struct exchange *x);

int exchange_open(struct exchange *x, const struct docker *d, const char *path,
                  const struct deadline *by, struct err *err);
/* The reason for a failure r of exchange_open(). */
enum docker_reason exchange_unopened(int r);
/* extra: header lines or NULL. */
int exchange_send(struct exchange *x, const char *method, const char *extra, const json_t *body,
                  struct err *err);
int exchange_head(struct exchange *x, struct err *err);
/* Sends the request and reads the head of the answer, whatever its status. */
int exchange_request(struct exchange *x, const char *method, const char *extra, const json_t *body,
                     struct err *err);
/* exchange_open(), then exchange_request(). */
int exchange_ask(struct exchange *x, const struct docker *d, const char *method, const char *path,
                 const json_t *body, const struct deadline *by, struct err *err);

/* Whether the status of the answer means success. */
bool exchange_ok(const struct exchange *x);
/* Reads the engine's error message and classifies it. */
int exchange_refused(struct exchange *x, enum docker_reason *reason, struct err *err);
/* Turns an error of the HTTP client into an error about the engine. */
int exchange_broke(const struct exchange *x, enum docker_reason *reason, struct err *err);
