/* The tables of cli.h as JSON, for programs that wrap the command line. */
#include <jansson.h>
#include <stdio.h>

#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"

static json_t *help_json_option(const struct cli_option *o)
{
    char letter[2] = {o->letter, '\0'};

    return json_pack("{s:s, s:s?, s:s?, s:s}", "name", o->name, "letter", o->letter ? letter : NULL,
                     "argument", o->arg, "help", o->help);
}

static json_t *help_json_of(const struct cli_command *cmd)
{
    json_t *options = json_array();
    const struct cli_option *o;

    for (size_t i = 0; (o = cli_option_at(cmd, i)); i++)
        json_array_append_new(options, help_json_option(o));
    return json_pack("{s:s, s:s, s:s, s:s?, s:o}", "name", cmd->name, "summary", cmd->summary,
                     "usage", cmd->usage, "details", cmd->details, "options", options);
}

void help_json_command(const struct cli_command *cmd)
{
    _cleanup_json_ json_t *doc = help_json_of(cmd);

    output_json(doc);
}

void help_json_overview(void)
{
    json_t *commands = json_array();
    _cleanup_json_ json_t *doc = json_pack("{s:o}", "commands", commands);

    for (const struct cli_command *const *c = cli_commands; *c; c++)
        json_array_append_new(commands, help_json_of(*c));
    output_json(doc);
}
