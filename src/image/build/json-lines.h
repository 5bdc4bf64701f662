/*
 * Lines of JSON between a build's processes: the daemon and ripcord-build, and ripcord-build and
 * the children that build its stages.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum { JSON_LINES_LINE_MAX = 4 << 20 };

struct json_lines {
    int in, out; /* borrowed; may be the same */
    struct buf lines;
};

#define JSON_LINES_INIT(i, o)                                                                      \
    {                                                                                              \
        .in = (i), .out = (o), .lines = BUF_INIT(JSON_LINES_LINE_MAX)                              \
    }
void json_lines_done(struct json_lines *w);

/* Takes the document, also when nobody hears it: false. */
bool json_lines_write(struct json_lines *w, json_t *doc);
/* The same, by a process that has nothing more to do when its listener has gone: it ends. */
void json_lines_write_or_exit(struct json_lines *w, json_t *doc);
/* Reads once; 0: the other has gone. */
int json_lines_fill(struct json_lines *w, struct err *err);
/* A line that is here: 1; 0: there is none yet. */
int json_lines_take(struct json_lines *w, json_t **ret, struct err *err);
/* Waits for one. */
int json_lines_next(struct json_lines *w, json_t **ret, struct err *err);
