/*
 * A place for the real ripcord-guest without a container engine: a pid, mount and network namespace
 * with `guest init` as its first process, and connections to guests that are started in it as an
 * engine starts them (from outside, as a plain user). kill(-1) and `guest reap` cannot harm other
 * processes there.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "proto/guest.h"

enum { GBOX_UID = 54321, GBOX_WAIT_MS = 60000 };

struct gbox {
    char dir[64]; /* holds the programs, and `home`, which is the user's */
    pid_t init;
    int init_pidfd;
};

/* The reason why this machine cannot make one, or NULL. */
const char *gbox_unavailable(void);
/* init: argv of pid 1; NULL: `guest init`. */
bool gbox_open(struct gbox *b, const char *const *init);
void gbox_close(struct gbox *b); /* ends all processes in it */
/* Processes in it, pid 1 and zombies included. */
size_t gbox_count(const struct gbox *b);
/* Waits until this many processes are left. */
bool gbox_settles(const struct gbox *b, size_t count);
#define _cleanup_gbox_ __attribute__((cleanup(gbox_close)))

/* ---- one guest in it ---- */

struct gconn {
    const struct gbox *box;
    int fd;
    pid_t pid; /* outside */
    struct buf in;
    size_t taken;
    uint32_t inside; /* its pid, from HELLO */
};

#define GCONN_INIT                                                                                 \
    {                                                                                              \
        .fd = -1, .in = BUF_INIT(GUEST_HEAD_SIZE + GUEST_PAYLOAD_MAX)                              \
    }
#define _cleanup_gconn_ __attribute__((cleanup(gconn_close)))

/* Starts `guest ARGS…` and takes its HELLO. */
bool gconn_open(struct gconn *l, const struct gbox *b, const char *const *args);
void gconn_close(struct gconn *l);   /* as a relay that is gone; waits for the guest's end */
void gconn_hang_up(struct gconn *l); /* only closes the connection */
bool gconn_send(const struct gconn *l, const struct buf *frames);
/* 1: a frame, 0: the end, -1: no frame in time, or invalid bytes. */
int gconn_next(struct gconn *l, struct guest_frame *ret);

/* `guest exec` of a command, with its STARTED taken. */
bool gconn_run(struct gconn *l, const struct gbox *b, const struct guest_spec *spec);
bool gconn_kill(const struct gconn *l, uint8_t flags);
bool gconn_stdin(const struct gconn *l, const void *data, size_t len, bool eof);

/* Everything up to the last frame. */
struct gend {
    struct buf out, err;
    enum guest_type last; /* EXIT, FAILED, DONE; 0: the line ended without */
    struct guest_exit ex;
    struct guest_done done;
    struct err failed;
    uint64_t acked;
    bool closed, out_eof;
};
#define GEND_INIT                                                                                  \
    {                                                                                              \
        .out = BUF_INIT(8 << 20), .err = BUF_INIT(8 << 20)                                         \
    }
#define _cleanup_gend_ __attribute__((cleanup(gend_done)))
void gend_done(struct gend *e);
bool gconn_finish(struct gconn *l, struct gend *ret);
