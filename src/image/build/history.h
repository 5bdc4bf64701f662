/*
 * An image's history: a line for each instruction, worded as BuildKit words it, so that `docker
 * history` and scanners read both alike. The lines are made with the plan; which of them stand for
 * a layer, and when that was made, is known when the build has ended.
 */
#pragma once

#include "image/build/plan.h"
#include "lib/base/json.h"

/* A longer one would not fit into a configuration, once it is written as JSON. */
enum { HISTORY_MAX = 256 << 10 };

/* What BuildKit calls an instruction, `c` being what it led to; new. `step`: what is to be done for
 * it, or NULL; `args`: the ARGs of the stage so far. NULL: it leaves no line. */
char *history_text(const struct dockerfile *df, const struct dockerfile_instruction *in,
                   const struct config *c, const struct build_step *step, char *const *args);

/* Lines of an image that others have made: its own, if they are plausible and as many as it has
 * layers, else one for each layer. New. */
json_t *history_of_base(const json_t *history, size_t n_layers);

/* Appends the line of a stage's note; `created` is NULL where nothing was made. */
void history_add(json_t *list, const char *text, bool layer, const char *created);

/* Lines without a time get one: of the first new layer, then of the last one before them. */
void history_fill_times(json_t *list);

/* The time that all of it is said to be of: the build argument SOURCE_DATE_EPOCH, as BuildKit has
 * it (https://reproducible-builds.org/specs/source-date-epoch). New; NULL: it was not given. */
int history_epoch(char *const *args, char **ret, struct err *err);
