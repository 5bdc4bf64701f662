/*
 * Execs: commands in a sandbox. A live exec is an object held by its sandbox from the call until
 * its end is known; after that only its row and its journals remain (and the object, for whoever
 * still has a reference). Everything on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/exec-request.h"
#include "daemon/engine/supervisor-conn.h"
#include "lib/base/json.h"
#include "lib/base/time.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"

struct sandbox;
struct manager;
struct loop_timer;

enum exec_state { EXEC_STARTING, EXEC_RUNNING, EXEC_ENDED };
const char *exec_state_name(enum exec_state s);

enum exec_event {
    EXEC_EVENT_STARTED,
    EXEC_EVENT_OUTPUT,
    EXEC_EVENT_ENDED, /* the last one */
};

/*
 * Somebody who wants to know. Embedded by its owner, who removes it before it goes. An attached
 * watch gets OUTPUT events and holds the writer back when `acked` falls a whole budget behind.
 */
struct exec_watch {
    struct exec_watch *next;
    void (*fn)(void *arg, enum exec_event event);
    void *arg;
    bool attached;
    uint64_t acked[JOURNAL_STREAMS]; /* UINT64_MAX: does not read this stream */
};

struct exec {
    struct sandbox *sb; /* NULL once ended */
    struct manager *m;
    struct exec *next; /* in the sandbox's list */
    unsigned refs;
    char id[EXEC_ID_LEN + 1];
    char sandbox_id[EXEC_ID_LEN + 1], sandbox_name[64];
    const char *exec_root; /* of its engine */
    uint64_t seq;
    enum exec_state state;
    struct exec_request req; /* emptied when it has been sent, but for argv and flags */
    bool detached;           /* nobody was to follow it */
    bool cancelled;          /* killed before it was sent */
    bool sent;               /* ahead, with the start of its sandbox */
    bool waiting;            /* sent, not begun because its sandbox went down: to be sent again */
    unsigned char refusals;  /* how often that happened */
    bool stored, attached;   /* attached: the supervisor sends us OUTPUT */
    uint64_t started_at, ended_at;
    int pid;
    int stdin_fd; /* owned: the write end of stdin or a pty master, non-blocking; -1: none */
    uint64_t end_of[JOURNAL_STREAMS]; /* as told by the last OUTPUT */
    struct exec_watch *watches;
    struct loop_timer *grace;  /* of a session that was told to end, or NULL */
    struct sandbox *read_from; /* after the end, in an ephemeral sandbox: held by our watches */
    struct end_record end;     /* valid when ended */
    struct err start_err;      /* set when the sandbox itself could not be brought up */
};

struct exec *exec_ref(struct exec *x);
void exec_unref(struct exec *x); /* NULL is fine */

/* NULL when it is not live; "last" is the newest one if that is live. */
struct exec *exec_find_live(struct sandbox *sb, const char *id);

void exec_watch_add(struct exec *x, struct exec_watch *w);
void exec_watch_remove(struct exec *x, struct exec_watch *w);
/* Tells the supervisor how far the slowest attached watch is. */
void exec_ack(struct exec *x);

typedef void (*exec_result_fn)(void *arg,
                               const struct err *err); /* never before the call returns */

/* ERR_CONFLICT when it has ended or not begun; else done tells. */
int exec_signal(struct exec *x, int sig, exec_result_fn done, void *arg, struct err *err);
int exec_kill(struct exec *x, exec_result_fn done, void *arg, struct err *err); /* whole cgroup */
void exec_resize(struct exec *x, uint16_t rows, uint16_t cols);
void exec_stdin_close(struct exec *x);

/* The EXEC document: of a live or held exec, or of a stored one. New reference. */
json_t *exec_to_json(const struct exec *x);
int exec_list_json(struct manager *m, struct sandbox *sb, json_t **ret, struct err *err);
/* Of all sandboxes: live ones, or with `all` as many of the rest as an answer may hold. */
int exec_list_all_json(struct manager *m, bool all, json_t **ret, struct err *err);
/* What execs have used together: {"execs","cpu_ms",…} of a sandbox; {"all","labels","sandboxes"} of
 * everything. New reference. */
int exec_totals_of(struct manager *m, const struct sandbox *sb, json_t **ret, struct err *err);
int exec_totals_all(struct manager *m, json_t **ret, struct err *err);
int exec_get_json(struct manager *m, struct sandbox *sb, const char *id, json_t **ret,
                  struct err *err);
