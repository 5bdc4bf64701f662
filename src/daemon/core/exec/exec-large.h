/*
 * Large commands. Until a supervisor has started it, an exec holds its whole request; the requests
 * of all execs together are bounded. After that only the first part of a long argv remains, in
 * memory and in the database: a list of a thousand execs must not have gigabytes.
 */
#pragma once

#include "daemon/core/exec/exec.h"

/* -ERR_LIMIT if too many large requests wait for their start. */
int exec_large_check(const struct manager *m, const struct exec_request *req, struct err *err);
/* The exec has its request. */
void exec_large_begin(struct exec *x);
/* It was started or has ended, or it is freed: releases what is not shown. */
void exec_large_release(struct exec *x);

/* The part of argv that documents show; borrowed. */
char *const *exec_large_argv(const struct exec *x);
/* Adds "argv_truncated" to a document, with the true size; words 0: nothing was cut. */
void exec_large_to_json(json_t *doc, size_t words, size_t bytes);
/* Keeps the true size in the stored options, and reads it back. */
void exec_large_to_options(const struct exec *x, json_t *options);
void exec_large_from_options(const json_t *options, size_t *ret_words, size_t *ret_bytes);
