/*
 * Builds the stages of a build in parallel. Each stage runs in its own child process: a build has
 * no threads, because it clones helpers. A stage starts when the stages that it needs have ended,
 * and no more run at once than the machine has processors. Events and questions of the children
 * pass through here to the daemon, and its answers back.
 *
 * The first failure ends the build. The other children are killed; the daemon is asked to stop its
 * work for them ({"cancel": true}); its answers are awaited, so that nothing writes to the
 * workspace any more when stages_run() returns.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/build/daemon-conn.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct stages {
    struct daemon_conn *daemon_conn; /* borrowed */
    void *arg;                       /* for the functions below */
    size_t n;
    bool (*is_needed)(void *arg, size_t stage);
    /* Whether `stage` needs the earlier one. */
    bool (*waits_for)(void *arg, size_t stage, size_t earlier);
    /*
     * In the child: builds the stage. daemon_conn: the child's own. *ret: a result for on_result.
     */
    int (*build)(void *arg, size_t stage, struct daemon_conn *daemon_conn, json_t **ret,
                 struct err *err);
    /* In the parent, when a stage has ended: takes its result. */
    int (*on_result)(void *arg, size_t stage, const json_t *result, struct err *err);
};

int stages_run(const struct stages *s, struct err *err);
