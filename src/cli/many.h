/*
 * One request for each of many sandboxes, in parallel, one result each.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

struct many {
    const char *method;
    const char *suffix; /* behind /v1/sandboxes/NAME: "/stop", "?force=1" or "" */
    const json_t *body; /* borrowed; NULL for none */
    const char *done;   /* "stopped": what is said of a success */
};

/* For every word of args. The exit status is that of the worst. */
int many_run(struct cli *cli, const struct cli_args *args, const struct many *m, struct err *err);
