/*
 * JSON lines between the processes of a build: between the daemon and ripcord-build, and between
 * ripcord-build and the children that build its stages.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum { JSON_LINES_LINE_MAX = 4 << 20 };

struct json_lines {
    int in, out;         /* borrowed; may be the same */
    struct buf received; /* bytes that no json_lines_take() has returned yet */
};

#define JSON_LINES_INIT(i, o)                                                                      \
    {                                                                                              \
        .in = (i), .out = (o), .received = BUF_INIT(JSON_LINES_LINE_MAX)                           \
    }
void json_lines_done(struct json_lines *l);

/* Writes a line. Takes the reference to the document in every case. False: the reader has gone. */
bool json_lines_write(struct json_lines *l, json_t *doc);
/* The same for a process that is useless without its reader: it exits when the reader has gone. */
void json_lines_write_or_exit(struct json_lines *l, json_t *doc);
/* Waits for bytes and reads once. 1; 0: the writer has gone. */
int json_lines_fill(struct json_lines *l, struct err *err);
/* Takes a line that was received. 1: *ret is set; 0: no whole line yet. */
int json_lines_take(struct json_lines *l, json_t **ret, struct err *err);
/* Waits for a whole line and takes it. */
int json_lines_next(struct json_lines *l, json_t **ret, struct err *err);
