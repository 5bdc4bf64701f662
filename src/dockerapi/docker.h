/*
 * The Engine API client: Docker and Podman over a unix socket, TCP or TLS.
 *
 * A struct docker does not change after docker_open(), and several threads may use it at once.
 * Every call opens its own connection (0.1 ms on a unix socket; the cheapest exec takes 50 ms), so
 * there is no pool to lock and no half-read answer from an earlier call. Every function blocks at
 * most until its deadline.
 *
 * Paths are without the version prefix ("/containers/json?all=1") and already percent-encoded;
 * docker_path() composes them.
 *
 * An error has the engine's own message (made printable), a code and usually a hint. The *reason*
 * (dockerapi/reason.h) says more than the code. The code is ERR_ENGINE if the engine is unreachable
 * or closed the connection, ERR_DENIED if the socket cannot be opened, and ERR_TIMEOUT if the
 * engine did not answer.
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

/* API versions that we support: 1.40 is Docker 19.03. */
#define DOCKER_API_MIN 40
#define DOCKER_API_MAX 51
#define DOCKER_BODY_MAX MIB(16)

enum docker_flavour { DOCKER_FLAVOUR_DOCKER, DOCKER_FLAVOUR_PODMAN };

struct docker {
    struct docker_endpoint endpoint;
    char *where; /* endpoint as text, for messages and for the relay's plan */
    enum docker_flavour flavour;
    unsigned api;        /* negotiated: 41 is 1.41 */
    unsigned engine_api; /* the highest that the engine offers */
    char *version;       /* of the engine: "20.10.24" */
    void *tls;           /* SSL_CTX, shared by all connections; NULL without TLS */
};

/* Connects, pings and negotiates the API version. Copies the endpoint. */
int docker_open(const struct docker_endpoint *endpoint, const struct deadline *by,
                struct docker **ret, struct err *err);
/* The same without asking the engine, for a caller that knows the result of docker_open(): the
 * relay. */
int docker_open_known(const struct docker_endpoint *endpoint, enum docker_flavour flavour,
                      unsigned api, struct docker **ret, struct err *err);
void docker_close(struct docker *d);                    /* accepts NULL */
const char *docker_flavour_name(enum docker_flavour f); /* "docker", "podman" */

/* Formats a path, like "/containers/%s/json". It knows only %s (percent-encoded as one component),
 * %d and %u. */
char *docker_path(const char *fmt, ...) _printf_(1, 2);

/* ---- plain calls ---- */

struct docker_reply {
    int status;                /* 0: the engine did not answer */
    enum docker_reason reason; /* of a failure; DOCKER_OK otherwise */
    json_t *json;              /* owned; NULL if the body was empty, or on failure */
};
#define DOCKER_REPLY_INIT                                                                          \
    {                                                                                              \
        0                                                                                          \
    }
#define _cleanup_reply_ __attribute__((cleanup(docker_reply_done)))
void docker_reply_done(struct docker_reply *r);

/*
 * One request and its answer. Success is a status below 300, or 304 (nothing to do); check
 * ret->status if the difference matters. ret may be NULL. On failure, its status and reason are set
 * too. The answers of load, import, pull and build are lines of progress: an error in one of them
 * is a failure, and ret->json is the last line.
 */
int docker_call(const struct docker *d, const char *method, const char *path, const json_t *body,
                const struct deadline *by, struct docker_reply *ret, struct err *err);

/* The content of an upload: bytes in memory, or everything that a descriptor delivers. */
struct docker_source {
    const void *data;
    size_t len;
    int fd; /* used if data is NULL; borrowed */
};
/* Sends a tar to "/containers/X/archive?path=…", "/images/load" or "/build…". The engine's answer
 * is the result, even if it arrives before the last byte is sent. */
int docker_upload(const struct docker *d, const char *method, const char *path,
                  const struct docker_source *source, const struct deadline *by,
                  struct docker_reply *ret, struct err *err);
/* A GET whose body is written to fd (a file, or non-blocking) as it arrives. More than `max` bytes
 * are ERR_LIMIT. */
int docker_download(const struct docker *d, const char *path, int fd, uint64_t max,
                    const struct deadline *by, struct docker_reply *ret, struct err *err);

/* ---- hijacked streams: exec start, attach ---- */

struct docker_hijacked {
    int fd;           /* the caller's; a blocking stream socket */
    struct buf early; /* bytes that arrived with the head; they come before those of fd */
};
/*
 * The stream after a 101 or 200. shutdown(fd, SHUT_WR) is the end of stdin, also on TLS, where fd
 * is one end of a socketpair and a thread copies. The deadline is for the head only. Nothing is
 * sent before the 101, because Docker would lose it.
 */
int docker_hijack(const struct docker *d, const char *path, const json_t *body,
                  const struct deadline *by, struct docker_hijacked *ret,
                  struct docker_reply *ret_reply, struct err *err);

/* ---- long answers of JSON lines: events, wait, progress ---- */

struct docker_stream;

/* stop_fd (-1: none; borrowed): when it is readable, every wait on this stream ends. The deadline
 * is for the head. */
int docker_stream_open(const struct docker *d, const char *method, const char *path,
                       const json_t *body, int stop_fd, const struct deadline *by,
                       struct docker_stream **ret, struct docker_reply *ret_reply, struct err *err);
/* The same for a POST without a body, with more header lines (each ends with CRLF), or NULL. */
int docker_stream_ask(const struct docker *d, const char *path, const char *extra,
                      const struct deadline *by, struct docker_stream **ret, struct err *err);
/* The same for a build, whose request sends a file from its offset to its end. The deadline is for
 * the whole stream. */
int docker_stream_upload(const struct docker *d, const char *path, int fd, int stop_fd,
                         const struct deadline *by, struct docker_stream **ret,
                         struct docker_reply *ret_reply, struct err *err);
/*
 * The next line as JSON. Returns 1; 0 at the proper end of the answer, or if stop_fd is readable;
 * -ERR_TIMEOUT if the deadline passed (nothing is lost, call again); -ERR_ENGINE if the connection
 * broke, because a stream without its end means that the engine died. With a deadline in the past
 * it only polls. An event loop on docker_stream_fd() must call it until -ERR_TIMEOUT before it
 * waits, because complete lines may already be in memory.
 */
int docker_stream_next(struct docker_stream *s, const struct deadline *by, json_t **ret,
                       struct err *err);
/* Whether stop_fd is readable, to distinguish the two meanings of 0. */
bool docker_stream_stopped(const struct docker_stream *s);
int docker_stream_fd(const struct docker_stream *s);
void docker_stream_close(struct docker_stream *s); /* accepts NULL */

DEFINE_CLEANUP(struct docker *, docker_close);
DEFINE_CLEANUP(struct docker_stream *, docker_stream_close);
