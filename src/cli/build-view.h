/*
 * Shows the events of a build on stderr, either in BuildKit's plain form for logs,
 *
 * #5 [2/4] RUN make #5 0.123 cc -o hello hello.c #5 DONE 1.2s
 *
 * or as a live view on a terminal: one line for each finished step, and below them the running
 * steps with their last lines of output. Output of a build is hostile, so it is escaped.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json.h"

struct build_view;

struct build_view *build_view_new(bool live);
void build_view_free(struct build_view *v); /* erases the live part; NULL is fine */

void build_view_event(struct build_view *v, const json_t *event);
/* Redraws the live view when its times are out of date; to be called often. */
void build_view_tick(struct build_view *v);
/* After a failed build: prints the output of the failed step unless it was printed before. Returns
 * the step's line in the Dockerfile and stores its text, which the view owns; 0 and NULL when the
 * step is unknown. */
unsigned build_view_failure(struct build_view *v, const char **ret_text);
