/*
 * Files of the build context: the Dockerfile, the .dockerignore, and the archives that ADD unpacks.
 */
#pragma once

#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"

/* Reads and parses the Dockerfile, then removes ignored files from the context. */
int context_dockerfile(struct workspace *w, const char *path, struct dockerfile **ret,
                       struct err *err);

/*
 * ADD: unpacks the archives among the sources into the root of layer n. folder: the sources' folder
 * in the workspace. *ret: the other sources, still to be copied; NULL: no others.
 */
int context_add(struct workspace *w, const struct build_plan_step *s, const char *folder,
                char *const *sources, char *const *layers, unsigned n, char ***ret,
                struct err *err);
