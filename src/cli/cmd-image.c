/* ripcord image: what sandboxes are made of. Its actions are in image-*.c. */
#include <string.h>

#include "base/strv.h"
#include "cli/cli.h"
#include "cli/image.h"
#include "cli/options.h"

static const struct {
    const char *name;
    int (*run)(struct cli *cli, const struct cli_args *args, struct err *err);
} actions[] = {
    {"lint", image_lint},
};

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *names[ARRAY_SIZE(actions)], *near, *name = args->words[0];

    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        names[i] = actions[i].name;
        if (STREQ(actions[i].name, name))
            return actions[i].run(cli, args, err);
    }
    near = strv_nearest(name, names, ARRAY_SIZE(names));
    err_set(err, ERR_INVALID, "'%s' is not lint", name);
    return near ? err_hint(err, "Did you mean 'ripcord image %s'?", near) : -ERR_INVALID;
}

static const struct cli_option options[] = {
    {"fix", 0, NULL, "repair what can be repaired without a person, in place", NULL},
    {"strict", 0, NULL, "exit with 1 also for what is only info", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_image = {
    .name = "image",
    .summary = "look for mistakes in Dockerfiles",
    .usage = "image lint [--fix] [--strict] [FILE...]",
    .details =
        "lint reads Dockerfiles as BuildKit does and reports what a build would not say: cache "
        "mounts that are contradicted on the same RUN, that belong to the wrong user or lie where "
        "the tool does not look, installs without any cache, versions that are not pinned, secrets "
        "that stay in the image, downloads that are run unread, and more. Each finding has a "
        "place, "
        "a rule and what to do; docs/lint.md has a section for each rule. Without FILE it is "
        "./Dockerfile; '-' is the standard input. No daemon is needed.\n\n"
        "A comment '# ripcord: ignore=RULE' before an instruction (or among its lines) takes a "
        "rule "
        "away for it, '# ripcord: ignore-file=RULE' for the whole file.\n\n"
        "The exit status is 1 when there is a warning or an error, and 0 when there is none.",
    .examples = "ripcord image lint\t./Dockerfile\n"
                "ripcord image lint --fix a/Dockerfile b/Dockerfile\trepair in place\n"
                "ripcord image lint --json - <Dockerfile\tfor programs\n",
    .groups = groups,
    .words = "lint",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
