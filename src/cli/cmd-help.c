/* ripcord help: prints help texts, manual pages and shell completions. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/help.h"
#include "cli/options.h"

static void show(const struct cli_command *topic, void (*overview)(void),
                 void (*command)(const struct cli_command *))
{
    if (topic)
        command(topic);
    else
        overview();
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *format = args_get(args, "format");
    const struct cli_command *topic = NULL;

    if (args->n_words) {
        topic = cli_find_command(args->words[0]);
        if (!topic)
            return cli_unknown_command(args->words[0], err);
    }
    if (args->n_words > 1 && !cli_find_action(topic, args->words[1]))
        return err_set(err, ERR_INVALID, "'ripcord %s' has no action '%s'", topic->name,
                       args->words[1]);
    if (cli->json && !format)
        show(topic, help_json_overview, help_json_command);
    else if (topic && (!format || STREQ(format, "text")))
        help_command_or_action(topic, args->n_words > 1 ? args->words[1] : NULL);
    else if (!format || STREQ(format, "text"))
        help_overview();
    else if (STREQ(format, "man"))
        show(topic, help_man_overview, help_man_command);
    else if (STREQ(format, "bash"))
        help_bash();
    else if (STREQ(format, "zsh"))
        help_zsh();
    else if (STREQ(format, "fish"))
        help_fish();
    else
        return err_set(err, ERR_INVALID,
                       "--format: unknown format '%s'; supported: text, man, bash, zsh, fish",
                       format);
    return 0;
}

static const struct cli_option options[] = {
    {"format", 0, "FORMAT",
     "text (default), man (manual page), or bash, zsh, fish (shell completion)",
     "text man bash zsh fish"},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_help = {
    .name = "help",
    .summary = "show the list of commands or the help of one command",
    .usage = "help [COMMAND [ACTION]] [options]",
    .examples = "ripcord help exec\tsame as 'ripcord exec --help'\n"
                "ripcord help image pull\tone action of a command\n"
                "source <(ripcord help --format bash)\tenable completion in this shell",
    .groups = groups,
    .complete = "topic",
    .max_args = 2,
    .stop_after = -1,
    .run = run,
};
