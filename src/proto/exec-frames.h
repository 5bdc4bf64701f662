/*
 * The exec wire: frames on a connection upgraded to `ripcord-exec/1`. u8 type, u32 big-endian
 * length, bytes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

#define FRAME_PROTOCOL "ripcord-exec/1"

enum { FRAME_HEAD_SIZE = 5, FRAME_PAYLOAD_MAX = 1 << 20 };

enum frame_type {
    /* client to server */
    FRAME_STDIN = 1,     /* bytes */
    FRAME_STDIN_EOF = 2, /* empty */
    FRAME_SIGNAL = 3,    /* u8 signal number */
    FRAME_RESIZE = 4,    /* u16 rows, u16 cols, big-endian */
    FRAME_DETACH = 5,    /* empty: the exec runs on, regardless of on_disconnect */
    /* server to client */
    FRAME_STARTED = 16, /* JSON: {"sandbox","exec","pid"} */
    FRAME_STDOUT = 17,  /* u64 big-endian offset, bytes */
    FRAME_STDERR = 18,
    FRAME_GAP = 19,   /* u8 stream (1 stdout, 2 stderr), u64 from, u64 to: these bytes are lost */
    FRAME_END = 20,   /* JSON: the end record; the last frame */
    FRAME_ERROR = 21, /* JSON {"error":…}: replaces END if the exec cannot be run or followed */
};

struct frame {
    uint8_t type;
    uint32_t length;
    const char *data; /* borrowed from the buffer given to frame_parse() */
};

void frame_put_u64(char p[static 8], uint64_t v);
uint64_t frame_get_u64(const char *p);
void frame_put_head(char p[static FRAME_HEAD_SIZE], enum frame_type type, uint32_t length);
int frame_append(struct buf *b, enum frame_type type, const void *data, size_t len) _must_check_;

/* 1 and *ret, consuming *used bytes; 0 if more bytes are needed; -ERR_INVALID for an unknown type
 * or a payload over FRAME_PAYLOAD_MAX. */
int frame_parse(const char *data, size_t len, struct frame *ret, size_t *used, struct err *err);
