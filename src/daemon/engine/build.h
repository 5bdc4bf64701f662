/*
 * Builds of images from a Dockerfile: the request to an engine, and the events of a running build.
 *
 * A build runs on a worker of the engine's own pool for builds, so that a long build holds no
 * worker that sandboxes need. Its events go through a pipe to the loop as JSON lines: the build_*()
 * calls of a backend block while the pipe is full. Any thread of the build may make them.
 *
 * The lines, as in docs/API.md:
 *
 *   {"event":"step","step":5,"stage":"build","n":2,"of":4,"text":"RUN make","line":7}
 *   {"event":"cached","step":5}
 *   {"event":"output","step":5,"stream":"stdout","ms":123,"data":"…"}
 *   {"event":"progress","step":5,"what":"…","current":1,"total":2}
 *   {"event":"step_end","step":5,"ms":1200,"error":"…"}     error: only when the step failed
 *   {"event":"warning","text":"…","line":7}                 line: when it is known
 *   {"event":"need","contents":["…"]}                       of a digest-only context; none: all
 *
 * Core adds the last line: {"event":"end",…} with the image or the error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct build;
struct engine;

enum {
    BUILD_STEPS_MAX = 1 << 16,
    BUILD_NEEDS_MAX = 1000,
    BUILD_SECRETS_MAX = 1 << 20, /* bytes of all of them as JSON */
    BUILD_LOGINS_MAX = 256,      /* number of registries */
    BUILD_LOGINS_SIZE = 1 << 20, /* and bytes of all of them as JSON */
    BUILD_AGENTS_MAX = 16,
};
#define BUILD_CONTEXT_MAX (UINT64_C(8) << 30)

struct build_secret {
    char *id, *value;
    size_t len;
};

/* For base images; the registry's name as in image names, "docker.io" for Docker Hub. */
struct build_login {
    char *registry, *username, *password;
};

/* Strings are owned: build_request_done(). A failure that the Dockerfile causes (a command's
 * exit status, a file that is not in the context, an unknown stage) is ERR_INVALID. */
struct build_request {
    int context; /* the context as a plain tar: an unnamed file, positioned at its start */
    uint64_t context_size; /* of that file */
    char *dockerfile;      /* its path in the context */
    char **tags;           /* names of the image; none: only its id */
    char *target;          /* last stage to build; NULL: the last of the file */
    char **args;           /* K=V, for ARG */
    char *platform;        /* "linux/amd64"; NULL: the engine's own */
    char *network;         /* network of RUN, as for a sandbox; NULL: the builder's default */
    bool digest_only;      /* a digest-only context (proto/digest-context.h) */
    bool no_cache;         /* runs every step, also cached ones */
    bool pull;             /* asks registries also for images that are in the store */
    struct build_secret *secrets; /* for RUN --mount=type=secret */
    size_t n_secrets;
    struct build_login *logins;
    size_t n_logins;
    char **agents; /* "ID=SOCKET", paths on this machine: for RUN --mount=type=ssh */
};

void build_request_done(struct build_request *r);

/* ---- for backends, on the build's threads ---- */

struct build_step_info {
    const char *stage; /* name; "" or NULL: the only stage; "internal": not in the Dockerfile */
    unsigned n, of;    /* number of the step in its stage; 0: not counted */
    const char *text;  /* the instruction */
    unsigned line;     /* line in the Dockerfile; 0: unknown */
};

enum build_stream { BUILD_STDOUT = 1, BUILD_STDERR = 2 };

/* Returns the number of the step, from 1, for the calls below. Several steps may run at once. */
unsigned build_step_begin(struct build *b, const struct build_step_info *s);
/* The result is cached and nothing runs. build_step_end() follows as for any step. */
void build_step_cached(struct build *b, unsigned step);
void build_step_output(struct build *b, unsigned step, enum build_stream stream, const void *data,
                       size_t len);
/* total 0: unknown. */
void build_step_progress(struct build *b, unsigned step, const char *what, uint64_t current,
                         uint64_t total);
/* error NULL: success. */
void build_step_end(struct build *b, unsigned step, const char *error);
void build_warning(struct build *b, const char *text, unsigned line);
/* Digests (hex) of files that a digest-only context lacks: the build fails, and the client
 * builds again with them. */
void build_need(struct build *b, const char *const *digits, size_t n);

/* Readable when the build is cancelled: the backend ends it, removes everything and returns any
 * error. */
int build_stop_fd(const struct build *b);
bool build_stopped(const struct build *b);

/* ---- for core, on the loop ---- */

/* The body of the request: `secrets` bytes of JSON, {"id":"value",…}, then `logins` bytes,
 * {"registry":{"username":"…","password":"…"},…}, then the tar. */
struct build_body {
    int fd;          /* a pipe, read to its end; taken, also on failure */
    const char *dir; /* folder of the unnamed file that keeps the context; copied */
    uint64_t secrets, logins;
};

struct build_events {
    void (*lines)(void *arg, const char *text, size_t len); /* one or more whole lines */
    /* err NULL: json is the result. The last call; the build is freed after it. */
    void (*done)(void *arg, const struct err *err, const char *json);
};

/* ERR_UNSUPPORTED when the engine has no builder; no callback is called then. Takes the contents
 * of the request, also on failure, and sets its context. */
int engine_build(struct engine *e, struct build_request *req, const struct build_body *body,
                 const struct build_events *events, void *arg, struct build **ret, struct err *err);
/* on: no lines until the next call with false. */
void build_hold(struct build *b, bool on);
/* No more lines; `done` is called when the engine has cleaned up. */
void build_cancel(struct build *b);
