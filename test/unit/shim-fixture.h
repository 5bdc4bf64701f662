/*
 * A sandbox for the shim's tests: a plan in a temporary folder, a skeleton of the host image, the
 * real shim on the real kernel, and the daemon's side of its socket, with blocking calls.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/journal/record.h"
#include "proto/plan.h"
#include "proto/supervisor.h"

enum { BOX_WAIT_MS = 60000 };

struct box {
    char *dir; /* holds all files; removed */
    struct plan plan;
    int sock;  /* to the shim, or -1 */
    int pidfd; /* of the shim, our child */
    int shim;  /* its pid */
    uint64_t seq;
    uint32_t unenforced;
    struct err err; /* of the start */
};

/* The result of one exec. */
struct box_result {
    struct end_record rec;
    char *out, *err; /* the journals, NUL-terminated */
    size_t out_len, err_len;
    struct err start; /* if it did not start */
    bool ended;
};

/* NULL if this machine can make sandboxes, else the reason. */
const char *box_unavailable(void);

void box_init(struct box *b); /* fills b->plan, to be changed before box_up() */
/* The same without namespaces. own_id: user of the commands; 0: ours. */
void box_init_confined(struct box *b, uint32_t own_id);
int box_up(struct box *b); /* 0, or -code with b->err */
/* Kills the shim if it still runs, waits for it, removes the files. Fine on an empty box. */
void box_down(struct box *b);
#define BOX_EMPTY                                                                                  \
    {                                                                                              \
        .sock = -1, .pidfd = -1                                                                    \
    }
#define _cleanup_box_ __attribute__((cleanup(box_down)))
/* Waits until the shim has ended by itself; its exit status, or -1 after a minute. */
int box_wait(struct box *b);

/* Asks the shim to stop and waits for it. */
void box_stop(struct box *b);

/* Messages. box_recv() returns the type, 0 at the end of the connection, -1 if no message came
 * within a minute. */
void box_begin(struct box *b, struct sup_writer *w, enum sup_msg_type type, const char *exec);
void box_send(struct box *b, struct sup_writer *w);
int box_recv(struct box *b, char packet[SUP_MSG_MAX], size_t *len, int *fd);
/* Skips other messages until this type has come. */
bool box_expect(struct box *b, enum sup_msg_type type, char packet[SUP_MSG_MAX], size_t *len,
                int *fd);
/* A second connection, greeted; NULL-safe fields as in box. */
int box_connect(const struct box *b);

/* EXEC of a shell script as `id`, with extra fields already put by the caller when w is given. */
void box_exec_begin(struct box *b, struct sup_writer *w, const char *id, const char *script);
/* Runs to the end. */
void box_run(struct box *b, const char *id, const char *script, struct box_result *ret);
/* Waits for ENDED of `id` and reads its journals. */
void box_collect(struct box *b, const char *id, struct box_result *ret);
void box_result_done(struct box_result *r);
/* Runs and expects that exact stdout. */
#define SAYS(b, id, script, text)                                                                  \
    do {                                                                                           \
        struct box_result r_;                                                                      \
        box_run(&(b), id, script, &r_);                                                            \
        if (r_.start.code || strcmp(r_.out, text) != 0)                                            \
            printf("# '%s' said '%s' / '%s' %s\n", script, r_.out, r_.err,                         \
                   r_.start.msg ? r_.start.msg : "");                                              \
        CHECK(r_.ended &&strcmp(r_.out, text) == 0);                                               \
        box_result_done(&r_);                                                                      \
    } while (0)
/* Waits until the stdout of `id` holds this; false after a minute. */
bool box_said(const struct box *b, const char *id, const char *text);
/* The first bytes of its stdout so far; freed by the caller. */
char *box_heard(const struct box *b, const char *id);

/* Processes, cgroup folders and mounts on the machine that carry this box's ids, when they have
 * had a moment to go: 0 is clean. */
int box_leftovers(const struct box *b);
int box_leftovers_now(const struct box *b);
