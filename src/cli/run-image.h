/*
 * What `run` and `up` need of an image: it is pulled when it is absent, and it has a command of its
 * own.
 */
#pragma once

#include "cli/options.h"

extern const struct cli_group image_group; /* --pull */

/* Makes sure that the image of --image is on the engine, as --pull says. sandbox: the name of one
 * that may exist already, on an engine of its own; or NULL. */
int run_image_ensure(struct cli *cli, const struct cli_args *args, const char *sandbox,
                     struct err *err);
/* The image's own command, ENTRYPOINT and CMD: *ret is NULL-terminated and the caller's. */
int run_image_command(struct cli *cli, const struct cli_args *args, char ***ret, struct err *err);
