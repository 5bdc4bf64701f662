/*
 * Sends the same request for several sandboxes in parallel. Each sandbox has its own result.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/json.h"

struct many {
    const char *method;
    const char *suffix; /* after /v1/sandboxes/NAME: "/stop", "?force=1" or "" */
    const json_t *body; /* borrowed; NULL: no body */
    const char *done;   /* word for success, e.g. "stopped" */
};

/* Handles the sandbox of each word in args. Returns the highest exit status. */
int many_run(struct cli *cli, const struct cli_args *args, const struct many *m, struct err *err);
