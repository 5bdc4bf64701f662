/*
 * One conversation of proto/files.h with a helper inside a sandbox. The request is sent, answers
 * arrive in callbacks, and the end comes once: when the helper's bytes are all read and the
 * supervisor has reported its result. All on the loop.
 */
#pragma once

#include <stdbool.h>

#include "daemon/api/call.h"
#include "lib/base/buf.h"
#include "proto/files.h"

struct file_talk;

struct file_talk_events {
    /* One message; false: the conversation ends with *err, which the callee has filled. */
    bool (*message)(void *arg, const struct files_message *m, struct err *err);
    /* Raw bytes behind HEAD. */
    void (*bytes)(void *arg, const char *data, size_t len);
    /* The socket took all that file_talk_send() gave. NULL: not wanted. */
    void (*sent)(void *arg);
    /* Once, unless file_talk_drop() was called before. err NULL: success. The talk is freed after
     * it returns. */
    void (*ended)(void *arg, const struct err *err);
};

struct file_talk_config {
    const char *sandbox, *user; /* user NULL: the sandbox's */
    bool writes;
    const struct buf *request; /* a finished message */
    const struct file_talk_events *events;
    void *arg;
};

/* NULL with *err: nothing has begun, and no callback is called. */
struct file_talk *file_talk_start(struct api *a, const struct file_talk_config *config,
                                  struct err *err);
/* Sends bytes of a file, cut into messages; `end` marks the end. What the socket does not take
 * waits, and the callback `sent` comes when it has gone. */
void file_talk_send(struct file_talk *t, const char *data, size_t len, bool end);
/* Bytes that wait to be sent. */
size_t file_talk_pending(const struct file_talk *t);
/* Whether answers are read. A slow client holds the helper back. */
void file_talk_read(struct file_talk *t, bool on);
/* The client has gone: the helper ends, and no callback comes any more. NULL is fine. */
void file_talk_drop(struct file_talk *t);
