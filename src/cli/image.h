/*
 * The actions of `ripcord image`.
 */
#pragma once

#include <jansson.h>

#include "cli/cli.h"

struct cli_args;

int image_build(struct cli *cli, const struct cli_args *args, struct err *err);

struct lint_finding;
int image_lint(struct cli *cli, const struct cli_args *args, struct err *err);

/* Prints one finding for another command: a line on stderr, or with --json an event on stdout. */
void image_lint_show(const struct cli *cli, const char *path, const char *text,
                     const struct lint_finding *f);

/* The store: image-store.c. */
int image_import(struct cli *cli, const struct cli_args *args, struct err *err);
int image_ls(struct cli *cli, const struct cli_args *args, struct err *err);
int image_show(struct cli *cli, const struct cli_args *args, struct err *err);
int image_rm(struct cli *cli, const struct cli_args *args, struct err *err);
int image_prune(struct cli *cli, const struct cli_args *args, struct err *err);
void image_print_imported(const json_t *doc); /* the response of an import or a pull */

/* image-transfer.c */
/* A pull for another command: progress only on a terminal, credentials of ~/.docker/config.json. */
int image_pull_quietly(struct cli *cli, const char *name, const char *engine, json_t **ret,
                       struct err *err);
int image_pull(struct cli *cli, const struct cli_args *args, struct err *err);
int image_push(struct cli *cli, const struct cli_args *args, struct err *err);

/* image-export.c */
int image_export(struct cli *cli, const struct cli_args *args, struct err *err);
