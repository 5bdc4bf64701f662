/*
 * Turns a checked `cache warm` request into what warm.c runs: the command, the files that it needs,
 * and the spec of the sandbox. No option of a command lets the code of a package run.
 */
#pragma once

#include "lib/base/json.h"

struct warm_plan {
    const char *tool, *engine; /* tool: static; engine: borrowed from the spec, or NULL */
    char **argv;
    int files; /* owned: pipe with an archive of folder `warm`, for WARM_HOME */
    json_t *spec;
};

/* Relative to WARM_HOME. */
#define WARM_FOLDER "warm"
#define WARM_HOME "/home/agent"

int warm_plan_read(const json_t *request, struct warm_plan *ret, struct err *err);
void warm_plan_done(struct warm_plan *p);
