/*
 * A build's events for people, on stderr: BuildKit's plain form for logs,
 *
 *   #5 [2/4] RUN make
 *   #5 0.123 cc -o hello hello.c
 *   #5 DONE 1.2s
 *
 * or a live view on a terminal: what is done, one line each, and below it what is under way with
 * its last lines. What a build writes is hostile: it is escaped.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json.h"

struct build_view;

struct build_view *build_view_new(bool live);
void build_view_free(struct build_view *v); /* takes the live part away; NULL is fine */

void build_view_event(struct build_view *v, const json_t *event);
/* A while has passed: times on the screen go on. */
void build_view_tick(struct build_view *v);
/* The build has failed: shows what was written by the step that did, where it has not been shown.
 * The line of that step in the Dockerfile and its text; 0 and NULL when it is not known. */
unsigned build_view_failure(struct build_view *v, const char **ret_text);
