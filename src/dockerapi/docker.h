/*
 * The Engine API client: Docker and Podman over a unix socket, TCP or TLS.
 *
 * A struct docker is immutable after docker_open() and may be used by several threads at once:
 * every call has its own connection (0.1 ms on a unix socket, against 50 ms of the cheapest exec),
 * so there is no pool to lock and no half-read answer to inherit. Every function blocks at most
 * until its deadline.
 *
 * Paths are without the version prefix ("/containers/json?all=1") and already percent-encoded;
 * docker_path() composes them.
 *
 * Failures carry the engine's own words, cleaned, a code and usually a hint. What a program wants
 * to tell apart beyond the code is the *reason* (dockerapi/reason.h). The code is ERR_ENGINE when
 * the engine cannot be reached or broke off, ERR_DENIED when the socket may not be opened,
 * ERR_TIMEOUT when it is silent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "dockerapi/endpoint.h"
#include "dockerapi/reason.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/time.h"

/* What we speak; an engine must offer at least the minimum. 1.40 is Docker 19.03. */
#define DOCKER_API_MIN 40
#define DOCKER_API_MAX 51
#define DOCKER_BODY_MAX MIB(16)

enum docker_flavour { DOCKER_FLAVOUR_DOCKER, DOCKER_FLAVOUR_PODMAN };

struct docker {
    struct docker_endpoint endpoint;
    char *where; /* endpoint as text, for messages and for the relay's plan */
    enum docker_flavour flavour;
    unsigned api;        /* negotiated: 41 is 1.41 */
    unsigned engine_api; /* highest that the engine offers */
    char *version;       /* the engine's own: "20.10.24" */
    void *tls;           /* SSL_CTX, shared by all connections; NULL without TLS */
};

/* Connects, pings, negotiates. Takes a copy of the endpoint. */
int docker_open(const struct docker_endpoint *endpoint, const struct deadline *by,
                struct docker **ret, struct err *err);
/* The same without a word to the engine, by one who was told what docker_open() had found (the
 * relay).
 */
int docker_open_known(const struct docker_endpoint *endpoint, enum docker_flavour flavour,
                      unsigned api, struct docker **ret, struct err *err);
void docker_close(struct docker *d);                    /* NULL is fine */
const char *docker_flavour_name(enum docker_flavour f); /* "docker", "podman" */

/* "/containers/%s/json": only %s (percent-encoded as one path or query component) and %d, %u. */
char *docker_path(const char *fmt, ...) _printf_(1, 2);

/* ---- plain calls ---- */

struct docker_reply {
    int status;                /* 0: the engine gave no answer */
    enum docker_reason reason; /* of a failure; DOCKER_OK otherwise */
    json_t *json;              /* owned; NULL when the body was empty, or on failure */
};
#define DOCKER_REPLY_INIT                                                                          \
    {                                                                                              \
        0                                                                                          \
    }
#define _cleanup_reply_ __attribute__((cleanup(docker_reply_done)))
void docker_reply_done(struct docker_reply *r);

/*
 * One request, one answer. Success is a status below 400, 304 ("already so") among them: look at
 * ret->status where that matters. ret may be NULL; on failure its status and reason are filled too.
 * The answers of load, import, pull and build are lines of progress: an error in them is a failure
 * here, and ret->json is the last line.
 */
int docker_call(const struct docker *d, const char *method, const char *path, const json_t *body,
                const struct deadline *by, struct docker_reply *ret, struct err *err);

/* What a request sends: bytes in memory, or all that comes from a descriptor until its end. */
struct docker_source {
    const void *data;
    size_t len;
    int fd; /* used when data is NULL; borrowed */
};
/* A tar to "/containers/X/archive?path=…", "/images/load", "/build…". The engine's answer counts,
 * even when it came before the last byte was sent. */
int docker_upload(const struct docker *d, const char *method, const char *path,
                  const struct docker_source *source, const struct deadline *by,
                  struct docker_reply *ret, struct err *err);
/* A GET whose body goes to fd (a file, or non-blocking) as it comes; more than `max` bytes is
 * ERR_LIMIT. */
int docker_download(const struct docker *d, const char *path, int fd, uint64_t max,
                    const struct deadline *by, struct docker_reply *ret, struct err *err);

/* ---- hijacked streams: exec start, attach ---- */

struct docker_hijacked {
    int fd; /* owned by the receiver; a plain stream socket, blocking until made otherwise */
    struct buf
        early; /* what came in the same segment as the head; comes before anything read from fd */
};
/*
 * The stream behind a 101 or 200. shutdown(fd, SHUT_WR) is end of stdin, also on TLS, where fd is
 * one end of a socketpair that a thread pumps. The deadline is for the head only. Docker loses what
 * is sent before the 101, which is why nothing is.
 */
int docker_hijack(const struct docker *d, const char *path, const json_t *body,
                  const struct deadline *by, struct docker_hijacked *ret,
                  struct docker_reply *ret_reply, struct err *err);

/* ---- answers that come in lines, for a long time: events, wait, progress ---- */

struct docker_stream;

/* stop_fd (-1: none; borrowed): readable makes every wait on this stream end. The deadline is for
 * the head. */
int docker_stream_open(const struct docker *d, const char *method, const char *path,
                       const json_t *body, int stop_fd, const struct deadline *by,
                       struct docker_stream **ret, struct docker_reply *ret_reply, struct err *err);
/* The same for a request that sends what there is in a file, from its offset on to its end: a
 * build. The deadline is for all of the stream. */
int docker_stream_upload(const struct docker *d, const char *path, int fd, int stop_fd,
                         const struct deadline *by, struct docker_stream **ret,
                         struct docker_reply *ret_reply, struct err *err);
/*
 * The next line as JSON. 1; 0 at the proper end of the answer, or when stop_fd is readable;
 * -ERR_TIMEOUT when the deadline passed with nothing lost (call again); -ERR_ENGINE when the engine
 * broke off: a stream without its end is an engine that died, never an end. A deadline in the past
 * makes it a poll: for an event loop on docker_stream_fd(), call until -ERR_TIMEOUT before going
 * back to wait, as complete lines may already have been read.
 */
int docker_stream_next(struct docker_stream *s, const struct deadline *by, json_t **ret,
                       struct err *err);
/* Whether stop_fd is readable: tells the two meanings of 0 apart. */
bool docker_stream_stopped(const struct docker_stream *s);
int docker_stream_fd(const struct docker_stream *s);
void docker_stream_close(struct docker_stream *s); /* NULL is fine */

DEFINE_CLEANUP(struct docker *, docker_close);
DEFINE_CLEANUP(struct docker_stream *, docker_stream_close);
