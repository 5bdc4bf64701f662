/*
 * Building an image from a Dockerfile: what an engine is asked, and how it tells what it does.
 *
 * A build runs on a worker of the engine's own pool for builds, so that a long one holds no worker
 * that sandboxes need. What it tells goes through a pipe to the loop as JSON lines, each side held
 * back by the slower one: the build_*() calls of a backend block while nobody reads. They may come
 * from any thread of the build.
 *
 * The lines, in docs/API.md word by word:
 *
 *   {"event":"step","step":5,"stage":"build","n":2,"of":4,"text":"RUN make","line":7}
 *   {"event":"cached","step":5}
 *   {"event":"output","step":5,"stream":"stdout","ms":123,"data":"…"}
 *   {"event":"progress","step":5,"what":"…","current":1,"total":2}
 *   {"event":"step_end","step":5,"ms":1200,"error":"…"}     error: only of one that failed
 *   {"event":"warning","text":"…","line":7}                 line: where it is known
 *   {"event":"need","contents":["…"]}                       of a thin context; none: all of it
 *
 * The last line is core's: {"event":"end",…} with the image or the error.
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
    BUILD_LOGINS_MAX = 256,      /* registries, */
    BUILD_LOGINS_SIZE = 1 << 20, /* and bytes of all of them as JSON */
    BUILD_AGENTS_MAX = 16,
};
#define BUILD_CONTEXT_MAX (UINT64_C(8) << 30)

struct build_secret {
    char *id, *value;
    size_t len;
};

/* For bases in a registry; its name as in images', "docker.io" for Docker's own. */
struct build_login {
    char *registry, *username, *password;
};

/* Strings are owned: build_request_done(). What fails by what the Dockerfile says (a command's exit
 * status, a file that is not in the context, an unknown stage) is ERR_INVALID. */
struct build_request {
    int context;           /* the context as a plain tar: a file without a name, at its start */
    uint64_t context_size; /* of that file */
    char *dockerfile;      /* its path in the context */
    char **tags;           /* names that the image gets; none: it is known by its id */
    char *target;          /* stage to end with; NULL: the last */
    char **args;           /* K=V, for ARG */
    char *platform;        /* "linux/amd64"; NULL: the engine's own */
    char *network;         /* of RUN, as a sandbox's; NULL: as the builder has it */
    bool digest_only;      /* files are left out of it, as proto/digest-context.h has it */
    bool no_cache;         /* every step is run, whatever is kept of it */
    bool pull;             /* registries are asked for images that are here already, too */
    struct build_secret *secrets; /* for RUN --mount=type=secret */
    size_t n_secrets;
    struct build_login *logins;
    size_t n_logins;
    char **agents; /* "ID=SOCKET", paths of this machine: for RUN --mount=type=ssh */
};

void build_request_done(struct build_request *r);

/* ---- for backends, on the build's threads ---- */

struct build_step {
    const char *stage; /* its name; "" or NULL: there is but one. "internal": not of the file */
    unsigned n, of;    /* the how-manieth of its stage; 0: it is not counted */
    const char *text;  /* the instruction */
    unsigned line;     /* in the Dockerfile; 0: not known */
};

enum build_stream { BUILD_STDOUT = 1, BUILD_STDERR = 2 };

/* Its number, from 1, for the calls below; several may be under way. */
unsigned build_step_begin(struct build *b, const struct build_step *s);
/* Nothing is run for it. Its end follows as for any other. */
void build_step_cached(struct build *b, unsigned step);
void build_step_output(struct build *b, unsigned step, enum build_stream stream, const void *data,
                       size_t len);
/* total 0: not known. */
void build_step_progress(struct build *b, unsigned step, const char *what, uint64_t current,
                         uint64_t total);
/* error NULL: it went well. */
void build_step_end(struct build *b, unsigned step, const char *error);
void build_warning(struct build *b, const char *text, unsigned line);
/* Digits of what was left out of a thin context: the build fails, and is asked for again. */
void build_need(struct build *b, const char *const *digits, size_t n);

/* Readable when whoever asked for the build has gone: the backend ends it, leaves nothing of it and
 * returns any error. */
int build_stop_fd(const struct build *b);
bool build_stopped(const struct build *b);

/* ---- for core, on the loop ---- */

/* Where the request's body comes from: `secrets` bytes of JSON, {"id":"value",…}, then `logins`
 * bytes, {"registry":{"username":"…","password":"…"},…}, then the tar. */
struct build_body {
    int fd;          /* a pipe, read to its end; taken, in any case */
    const char *dir; /* where the context is spooled, in a file without a name; copied */
    uint64_t secrets, logins;
};

struct build_events {
    void (*lines)(void *arg, const char *text, size_t len); /* one or more whole ones */
    /* err NULL: json is what it has become. The last call; the build is freed after it. */
    void (*done)(void *arg, const struct err *err, const char *json);
};

/* ERR_UNSUPPORTED when the engine has no builder; nothing is called then. Takes what the request
 * holds, in any case: its context is set here. */
int engine_build(struct engine *e, struct build_request *req, const struct build_body *body,
                 const struct build_events *events, void *arg, struct build **ret, struct err *err);
/* No more lines until it is let go. */
void build_hold(struct build *b, bool on);
/* No more lines; `done` follows when the engine has cleaned up. */
void build_cancel(struct build *b);
