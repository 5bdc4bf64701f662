/*
 * What came with the request: its Dockerfile, what its .dockerignore leaves out, and archives that
 * ADD takes apart.
 */
#pragma once

#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"

/* Reads and parses it, then removes from the context what is to be ignored. */
int context_dockerfile(struct workspace *w, const char *path, struct dockerfile **ret,
                       struct err *err);

/* ADD's sources, in a folder of the build: archives among them are taken apart into the root of
 * layer n; *ret is the rest. */
int context_add(struct workspace *w, const struct build_plan_step *s, const char *folder,
                char *const *sources, char *const *layers, unsigned n, char ***ret,
                struct err *err);
