/*
 * The connection from a process of a build to the daemon: events, and questions that the daemon
 * answers, as JSON lines (proto/json-lines.h). Each process that builds a stage has its own
 * connection and works on one step at a time, so that events and questions need not name their
 * step. A process that loses the daemon exits, because nobody needs its work any more.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "proto/json-lines.h"

struct daemon_conn {
    int control; /* borrowed: the daemon sends a new connection for each byte that it gets */
    struct json_lines lines;
};

#define DAEMON_CONN_INIT(c)                                                                        \
    {                                                                                              \
        .control = (c), .lines = JSON_LINES_INIT(-1)                                               \
    }
/* Gets a connection from the daemon. One that this process has inherited is closed. */
int daemon_conn_open(struct daemon_conn *c, struct err *err);
void daemon_conn_done(struct daemon_conn *c);

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
/* Waits until the daemon has passed on all events so far. Events that another process sends after
 * that come later. */
void daemon_conn_flush(struct daemon_conn *c);
