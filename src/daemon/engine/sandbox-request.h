/*
 * A call about one sandbox: what core asks (struct sandbox_request) and what the engine answers
 * (struct engine_sandbox). Also the form of sandbox ids, which become parts of paths. Plain values:
 * a worker gets a copy and never sees an object of core. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/command-size.h"
#include "lib/base/err.h"
#include "lib/base/usage.h"

struct exec_request;

/* The longest sandbox_request.spec_text that is read back. JSON writes some bytes of a variable as
 * six. */
enum { SPEC_TEXT_MAX = 6 * COMMAND_MAX + (1 << 20) };

/* Strings are owned: sandbox_request_done(). */
struct sandbox_request {
    char id[33];
    char name[64];
    char hash[65];
    bool ephemeral; /* removed by itself when its first exec ends */
    bool fresh;     /* nothing of the sandbox exists yet: a create that fails leaves nothing */
    bool keep;      /* create: keeps the state of another hash beside the new one until `settle` */
    struct sandbox_spec spec;
    char *spec_text;            /* opaque; kept in a private file for `list`; NULL: not kept */
    char *spec_label;           /* spec_text without secrets: may be put on the backend's objects */
    struct exec_request *first; /* start: runs as soon as the sandbox is up; NULL: none */
};

void sandbox_request_copy(struct sandbox_request *dst, const struct sandbox_request *src);
void sandbox_request_done(struct sandbox_request *req); /* NULL is fine */

enum engine_sandbox_state {
    ENGINE_SANDBOX_ABSENT,
    ENGINE_SANDBOX_STOPPED,
    ENGINE_SANDBOX_RUNNING,
    ENGINE_SANDBOX_PAUSED
};

struct engine_sandbox {
    char id[33]; /* 16 hex digits */
    enum engine_sandbox_state state;
    char hash[65];       /* config hash read back from the object, "" when unknown */
    uint32_t unenforced; /* enum limit_bit bits of the limits that are not enforced here */
    int supervisor_fd; /* start, connect: the supervisor's socket, owned by the receiver; else -1 */
    uint32_t minor;    /* start, connect: minor version of the supervisor's protocol */
    int pid;           /* the supervisor's pid, for people */
    bool disk_held;    /* start, connect: its disk limit or budget cannot be exceeded */
    bool first_sent;   /* start: the request's first exec was sent */
    char **warnings;   /* start, look: features that are missing here, in the engine's words;
                            owned by the call, which frees it after done() */
};

/* engine_usage() */
struct engine_usage {
    struct disk_usage files, output; /* of the sandbox; of its journals */
};

/* A sandbox id: 16 hex digits. Anything else is refused before it becomes part of a path. */
bool sandbox_id_is_valid(const char *id);
/* Names in a folder that are sandbox ids, added to *ids once each. */
int sandbox_ids_add(int dirfd, char ***ids, struct err *err);
