/*
 * What `cache warm` does in its sandbox: the request, checked, as a command, the files that it
 * needs, and the spec. For warm.c.
 */
#pragma once

#include "lib/base/json.h"

struct warm_plan {
    const char *tool, *engine; /* static; owned by the spec, or NULL */
    char **argv;
    int files; /* pipe with an archive of folder `warm`, which is to lie in the user's home; owned
                */
    json_t *spec;
};

/* Below the sandbox's home. */
#define WARM_FOLDER "warm"
#define WARM_HOME "/home/agent"

int warm_plan_read(const json_t *request, struct warm_plan *ret, struct err *err);
void warm_plan_done(struct warm_plan *p);
