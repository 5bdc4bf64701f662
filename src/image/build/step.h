/*
 * One step of a stage: found in the cache by its key, or done. A step's key is made of the key of
 * what it stands on, its own words and what it reads.
 */
#pragma once

#include "image/build/builder.h"

struct add_downloads;

/* Step n of the stage, found or done; `st` has come a step further then. */
int step_take(struct builder *b, struct builder_state *st, const struct build_stage *stage,
              size_t n, struct err *err);

/* step-files.c: COPY, ADD and WORKDIR, into layer n. f: what was fetched for it. */
int step_files(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
               const struct add_downloads *f, unsigned n, struct err *err);
/* step-run.c: RUN, likewise. */
int step_run(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
             unsigned n, struct err *err);

/* The network of a RUN. */
const char *step_network(const struct builder *b, const struct build_plan_step *s);
