/*
 * The actions of `ripcord image`.
 */
#pragma once

#include "cli/cli.h"

struct cli_args;

int image_lint(struct cli *cli, const struct cli_args *args, struct err *err);
