/*
 * One step of a stage: taken from the cache, or done. The cache key of a step is a digest of the
 * key of the step before it, of its own instruction, and of all files that it reads.
 */
#pragma once

#include "image/build/builder.h"

struct add_downloads;

/* Takes step n of the stage from the cache or carries it out, and adds its result to `st`. */
int step_take(struct builder *b, struct builder_state *st, const struct build_stage *stage,
              size_t n, struct err *err);

/* step-files.c: COPY, ADD and WORKDIR, into layer n. downloads: the files of the step's URLs. */
int step_files(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
               const struct add_downloads *downloads, unsigned n, struct err *err);
/* step-run.c: RUN, into layer n. */
int step_run(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
             unsigned n, struct err *err);

/* The network of a RUN. */
const char *step_network(const struct builder *b, const struct build_plan_step *s);
