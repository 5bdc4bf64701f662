/*
 * The input of a live exec: bytes from its clients, in the order of their arrival, written to its
 * stdin without blocking. Embedded in struct exec. When a full input has room again, the watches of
 * the exec get EXEC_EVENT_INPUT. All on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

struct exec;
struct loop_watch;

struct exec_input {
    int fd; /* owned: write end of stdin, or pty master; non-blocking; -1: not here, or closed */
    struct loop_watch *watch;
    struct buf pending;
    uint64_t taken; /* bytes that clients have sent */
    bool held;      /* a client's connection decides when the input ends */
    bool ending;    /* the end of file follows the pending bytes */
    bool closed;    /* later bytes are dropped */
    bool broken;    /* a write failed, and the command is being killed */
};

void exec_input_init(struct exec_input *in);
/* Takes the descriptor that the supervisor has sent (-1: none), and writes what waits for it. */
void exec_input_open(struct exec *x, int fd);
void exec_input_done(struct exec *x);

/* Takes all bytes or none. ERR_INVALID: the exec was started without input. ERR_LIMIT: too much is
 * pending; see exec_input_is_full(). */
int exec_input_write(struct exec *x, const void *data, size_t len, struct err *err);
bool exec_input_is_full(const struct exec *x);
/* The command sees the end of its input after the pending bytes. A terminal gets its end-of-file
 * character, and stays open. */
void exec_input_end(struct exec *x);
