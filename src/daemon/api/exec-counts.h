/*
 * What the package cache served while an exec ran, for its END (`stats`). Embedded by the answer
 * that follows the exec. All on the loop.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json.h"

struct exec;
struct manager;
struct package_counts;

struct exec_counts {
    bool wanted;             /* else nothing happens */
    void (*done)(void *arg); /* the figures are known, after exec_counts_pending() was true */
    void *arg;

    struct package_counts *counts; /* NULL: not begun */
    json_t *packages;              /* the result; NULL: none */
    bool stopped, pending;
};

/* Call it when the exec is made, and at each of its events before anything else. */
void exec_counts_update(struct exec_counts *e, struct manager *m, const struct exec *x);
/* The exec has ended, and its END waits for the figures. */
bool exec_counts_pending(const struct exec_counts *e);
/* Adds `packages` to END, if the package cache has served anything. */
void exec_counts_add(const struct exec_counts *e, json_t *end);
void exec_counts_done(struct exec_counts *e);
