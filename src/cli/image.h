/*
 * The actions of `ripcord image`.
 */
#pragma once

#include "cli/cli.h"

struct cli_args;

int image_lint(struct cli *cli, const struct cli_args *args, struct err *err);

/* The store: image-store.c. */
int image_import(struct cli *cli, const struct cli_args *args, struct err *err);
int image_ls(struct cli *cli, const struct cli_args *args, struct err *err);
int image_show(struct cli *cli, const struct cli_args *args, struct err *err);
int image_rm(struct cli *cli, const struct cli_args *args, struct err *err);
int image_prune(struct cli *cli, const struct cli_args *args, struct err *err);

/* image-export.c */
int image_export(struct cli *cli, const struct cli_args *args, struct err *err);
