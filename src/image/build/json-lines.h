/*
 * Lines of JSON between a build's processes: the daemon and ripcord-build, and ripcord-build and
 * the children that build its stages.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum { WIRE_LINE_MAX = 4 << 20 };

struct wire {
    int in, out; /* borrowed; may be the same */
    struct buf lines;
};

#define WIRE_INIT(i, o)                                                                            \
    {                                                                                              \
        .in = (i), .out = (o), .lines = BUF_INIT(WIRE_LINE_MAX)                                    \
    }
void wire_done(struct wire *w);

/* Takes the document, also when nobody hears it: false. */
bool wire_write(struct wire *w, json_t *doc);
/* The same, by a process that has nothing more to do when its listener has gone: it ends. */
void wire_send(struct wire *w, json_t *doc);
/* Reads once; 0: the other has gone. */
int wire_fill(struct wire *w, struct err *err);
/* A line that is here: 1; 0: there is none yet. */
int wire_take(struct wire *w, json_t **ret, struct err *err);
/* Waits for one. */
int wire_next(struct wire *w, json_t **ret, struct err *err);
