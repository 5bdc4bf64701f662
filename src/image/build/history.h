/*
 * An image's history: one line for each instruction, in the words of BuildKit, so that `docker
 * history` and scanners show our images and BuildKit's in the same way. The texts are made with the
 * plan. Which lines have a layer, and its time, is added when the build has ended.
 */
#pragma once

#include "image/build/plan.h"
#include "lib/base/json.h"

/* Longer lines would not fit into a configuration document. */
enum { HISTORY_MAX = 256 << 10 };

/*
 * The line of an instruction; the caller frees it. c: the configuration after the instruction.
 * step: its step in the plan, or NULL. args: the ARGs of the stage so far. NULL: the instruction
 * has no line.
 */
char *history_text(const struct dockerfile *df, const struct dockerfile_instruction *in,
                   const struct dockerfile_config *c, const struct build_plan_step *step,
                   char *const *args);

/*
 * The history of a base image; the caller owns it. An image's own lines count only if they are
 * valid and match its number of layers; otherwise there is one line for each layer.
 */
json_t *history_of_base(const json_t *history, size_t n_layers);

/* Appends a line. created: NULL for an instruction without a layer. */
void history_add(json_t *list, const char *text, bool layer, const char *created);

/* Gives lines without a time the time of the last layer before them, or of the first new layer. */
void history_fill_times(json_t *list);

/*
 * The build argument SOURCE_DATE_EPOCH, the time for all layers, as in BuildKit
 * (https://reproducible-builds.org/specs/source-date-epoch). The caller frees *ret; NULL: not
 * given.
 */
int history_epoch(char *const *args, char **ret, struct err *err);
