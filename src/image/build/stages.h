/*
 * The stages of a build, several at once: each in a child of its own, as a build has no threads (it
 * clones helpers), begun when those that it needs have ended, and only so many as there are
 * processors. What children tell and ask goes through here.
 *
 * The first that fails ends it all: the others are killed, what is being done for them is called
 * off ({"cancel": true}) and waited for, so that nobody works in the build's folder when it goes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/build/daemon-conn.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct stages {
    struct daemon_conn *daemon_conn;
    void *arg;
    size_t n;
    bool (*is_needed)(void *arg, size_t stage);
    /* Whether `stage` has to wait for the earlier one. */
    bool (*waits_for)(void *arg, size_t stage, size_t earlier);
    /* In a child: its state, for `took`. What is to be told and asked goes to the front given. */
    int (*build)(void *arg, size_t stage, struct daemon_conn *daemon_conn, json_t **ret,
                 struct err *err);
    /* Here, when it has ended. */
    int (*on_result)(void *arg, size_t stage, const json_t *state, struct err *err);
};

int stages_run(const struct stages *s, struct err *err);
