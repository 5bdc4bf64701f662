/*
 * The connection from a build to the daemon: events, and questions that the daemon answers. They
 * are JSON lines (json-lines.h). Each has the number of its step as "id", because several steps may
 * run at once (stages.h).
 */
#pragma once

#include "image/build/json-lines.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct daemon_conn {
    struct json_lines lines;
    unsigned step; /* the last number given to a step */
};

/*
 * Sends an event; takes the reference to the document:
 *   {"step": TEXT, "stage": NAME, "n": 2, "of": 4, "line": 7}   a step begins
 *   {"cached": true}                                            the step is in the cache
 *   {"end": ERROR or null}                                      the step has ended
 *   {"need": [DIGITS…]}                                         files are missing (missing-files.h)
 */
void daemon_conn_send_event(struct daemon_conn *c, json_t *event);

/* Questions: each sends one, takes the reference to the document, and waits for the answer. */

/* Runs a command on layers (step_run_json() in step-run.c). Fails when the command fails. */
int daemon_conn_run(struct daemon_conn *c, json_t *run, struct err *err);
/* Pulls an image: {"name", "as"}; "as" is its name in the store where that differs. */
int daemon_conn_pull(struct daemon_conn *c, json_t *pull, struct err *err);
/* Downloads a file: {"url", "etag", "to"}; "to" is below the store's folder. *ret: as in
 * image/transfer/download.h. */
int daemon_conn_fetch(struct daemon_conn *c, json_t *fetch, json_t **ret, struct err *err);

/*
 * Sets the "id" of a document to *step. If the document begins a step, *step becomes a new number
 * first. For stages.c, which forwards documents of its children.
 */
void daemon_conn_set_id(struct daemon_conn *c, unsigned *step, json_t *doc);
