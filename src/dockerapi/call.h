/*
 * One request and its answer on a connection of its own; what docker.h offers is made of these.
 * Inside src/docker/ only.
 */
#pragma once

#include "dockerapi/docker.h"
#include "lib/http/wire/client.h"

struct exchange {
    struct http_client http;
    const struct docker *d; /* NULL: not connected */
    char *target;           /* with the version's prefix */
    const char *path;       /* the part of target without it */
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
/* The reason when that failed with r. */
enum docker_reason exchange_unopened(int r);
/* extra: header lines or NULL. */
int exchange_send(struct exchange *x, const char *method, const char *extra, const json_t *body,
                  struct err *err);
int exchange_head(struct exchange *x, struct err *err);
/* All three: the head of the answer, whatever its status. */
int exchange_ask(struct exchange *x, const struct docker *d, const char *method, const char *path,
                 const json_t *body, const struct deadline *by, struct err *err);

/* Whether the answer's status says success. */
bool exchange_ok(const struct exchange *x);
/* Reads what the engine has to say about a failure and classifies it. */
int exchange_refused(struct exchange *x, enum docker_reason *reason, struct err *err);
/* Turns what the HTTP client says about a connection into what it means for the engine. */
int exchange_broke(const struct exchange *x, enum docker_reason *reason, struct err *err);
