/*
 * Builds the stages of a build, in parallel where they do not need each other. A stage starts when
 * the stages that it needs have ended. Stages that run at once have a child process each, because a
 * build clones helpers and so has no threads; no more run at once than the machine has processors.
 * A stage that runs alone is built in this process.
 *
 * The first failure ends the build: the other children are killed. The daemon then loses their
 * connections and stops its work for them; it removes the workspace only after that.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/build/daemon-conn.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct stages {
    struct daemon_conn *daemon_conn; /* borrowed: of this process; a child opens its own in it */
    void *arg;                       /* for the functions below */
    size_t n;
    bool (*is_needed)(void *arg, size_t stage);
    /* Whether `stage` needs the earlier one. */
    bool (*waits_for)(void *arg, size_t stage, size_t earlier);
    /* Builds the stage and puts its result into `arg`. */
    int (*build)(void *arg, size_t stage, struct err *err);
    /* From a child to its parent: the result as a new document, and back into `arg`. */
    json_t *(*result)(void *arg, size_t stage);
    int (*on_result)(void *arg, size_t stage, const json_t *result, struct err *err);
};

int stages_run(const struct stages *s, struct err *err);
