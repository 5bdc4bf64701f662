/*
 * What a build tells and asks of whoever started it: lines (json-lines.h), each with the number of
 * the step that it is of as its "id", as several may be under way (stages.h).
 */
#pragma once

#include "image/build/json-lines.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct daemon_conn {
    struct json_lines lines;
    unsigned step; /* the last number given */
};

/* What happens; takes the document:
 *   {"step": TEXT, "stage": NAME, "n": 2, "of": 4, "line": 7}   one begins
 *   {"cached": true}                                            it is there already
 *   {"end": ERROR or null}                                      it has ended
 *   {"need": [DIGITS…]}                                         missing-files.h
 */
void daemon_conn_send_event(struct daemon_conn *f, json_t *event);
/* Runs a command on layers; takes the document (build.c, run_json). Waits for its end, and its
 * files are in their place then. Fails when the command does. */
int daemon_conn_run(struct daemon_conn *f, json_t *run, struct err *err);
/* Brings an image in: {"name", "as"}, what it is called here where that is another name. */
int daemon_conn_pull(struct daemon_conn *f, json_t *pull, struct err *err);

/* Fetches a file: {"url", "etag", "to"}, the last below the store's folder. *ret:
 * image/transfer/download.h.
 */
int daemon_conn_fetch(struct daemon_conn *f, json_t *fetch, json_t **ret, struct err *err);

/* Puts the id into a document of somebody whose step at work is *step; a new one gets its own. */
void daemon_conn_set_id(struct daemon_conn *f, unsigned *step, json_t *doc);
