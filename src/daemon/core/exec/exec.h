/*
 * Execs: commands in a sandbox. The sandbox holds a live exec from the request until its end is
 * known. After that only its row and its journals remain, and the object while somebody has a
 * reference. All on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/exec/exec-input.h"
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
    EXEC_EVENT_INPUT, /* there is room for more input */
    EXEC_EVENT_ENDED, /* the last one */
};

/*
 * An observer of an exec. Embedded by its owner, who removes it before it is freed. An attached
 * watch gets OUTPUT events and stops the writer when `acked` is a whole budget behind.
 */
struct exec_watch {
    struct exec_watch *next;
    void (*fn)(void *arg, enum exec_event event);
    void *arg;
    bool attached;
    uint64_t acked[JOURNAL_STREAMS]; /* UINT64_MAX: does not read this stream */
};

struct exec {
    struct sandbox *sb; /* NULL after the end */
    struct manager *m;
    struct exec *next; /* in the sandbox's list */
    unsigned refs;
    char id[EXEC_ID_LEN + 1];
    char sandbox_id[EXEC_ID_LEN + 1], sandbox_name[64];
    const char *exec_root; /* of its engine */
    uint64_t seq;
    enum exec_state state;
    struct exec_request req; /* argv and flags stay; the rest is wiped when it has been sent */
    char **argv_shown;       /* the first part of a long argv, until it replaces it; or NULL */
    size_t argv_words, argv_bytes; /* of the whole argv if it is cut; else 0 */
    size_t held;                   /* the exec's share of manager.unstarted */
    bool detached;                 /* the client does not follow it */
    bool cancelled;                /* killed before it was sent; it will not be sent */
    bool sent;                     /* with the start of its sandbox, before exec_launch() */
    bool waiting; /* sent, but not started because its sandbox went down: to be sent again */
    unsigned char refusals; /* how often it was sent in vain */
    bool stored, attached;  /* attached: the supervisor sends us OUTPUT */
    uint64_t started_at, ended_at;
    int pid;
    struct exec_input input;
    uint64_t end_of[JOURNAL_STREAMS]; /* length of each stream, from the last OUTPUT */
    struct exec_watch *watches;
    struct loop_timer *grace;  /* of a cancelled session: kills it; or NULL */
    struct sandbox *read_from; /* ephemeral, after the end: kept alive by our watches */
    struct end_record end;     /* valid in state EXEC_ENDED */
    char *request_key;         /* of the request that made it; or NULL */
    struct err start_err;      /* set when the sandbox itself could not be started */
};

struct exec *exec_ref(struct exec *x);
void exec_unref(struct exec *x); /* NULL is allowed */

/* NULL when it is not live. "last": the newest exec, if that is live. */
struct exec *exec_find_live(struct sandbox *sb, const char *id);

void exec_watch_add(struct exec *x, struct exec_watch *w);
void exec_watch_remove(struct exec *x, struct exec_watch *w);
/* Sends the supervisor the position of the slowest attached watch. */
void exec_ack(struct exec *x);

typedef void (*exec_result_fn)(void *arg,
                               const struct err *err); /* never before the call returns */

/* ERR_CONFLICT at once when it has ended or not started; else done reports the result. */
int exec_signal(struct exec *x, int sig, exec_result_fn done, void *arg, struct err *err);
int exec_kill(struct exec *x, exec_result_fn done, void *arg,
              struct err *err); /* kills the whole cgroup */
void exec_resize(struct exec *x, uint16_t rows, uint16_t cols);

/* The EXEC document of a live or referenced exec; exec_get_json() also finds stored ones. New
 * reference. */
json_t *exec_to_json(const struct exec *x);

/* A page of a list of execs, newest first. */
struct exec_page {
    unsigned limit;  /* 0: as many as an answer may have */
    uint64_t before; /* continues behind that exec; 0: begins with the newest */
    bool sessions;   /* only sessions */
    uint64_t next;   /* returned: `before` of the next page; 0: this is the last one */
};
/* Adds the execs of a sandbox to a list. */
int exec_list_json(struct manager *m, struct sandbox *sb, struct exec_page *page, json_t *list,
                   struct err *err);
/* The same for live execs only. The page has a limit. */
void exec_list_live_json(const struct sandbox *sb, struct exec_page *page, json_t *list);
/* What execs have used in total: {"execs","cpu_ms",…} of a sandbox, or
 * {"all","labels","sandboxes"} of all of them. New reference. */
int exec_totals_of(struct manager *m, const struct sandbox *sb, json_t **ret, struct err *err);
int exec_totals_all(struct manager *m, json_t **ret, struct err *err);
int exec_get_json(struct manager *m, struct sandbox *sb, const char *id, json_t **ret,
                  struct err *err);
