/*
 * JSON lines between the processes of a build: the daemon, ripcord-build, and the children that
 * build its stages. All calls block.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum { JSON_LINES_LINE_MAX = 4 << 20 };

struct json_lines {
    int fd;              /* owned; -1: closed */
    struct buf received; /* bytes that json_lines_next() has not returned yet */
};

#define JSON_LINES_INIT(f)                                                                         \
    {                                                                                              \
        .fd = (f), .received = BUF_INIT(JSON_LINES_LINE_MAX)                                       \
    }
void json_lines_done(struct json_lines *l);
#define _cleanup_json_lines_ __attribute__((cleanup(json_lines_done)))

/* Writes a line. Takes the reference to the document in every case. False: the reader has gone. */
bool json_lines_write(struct json_lines *l, json_t *doc);
/* Waits for a line. 1: *ret is set; 0: the writer has gone. */
int json_lines_next(struct json_lines *l, json_t **ret, struct err *err);
