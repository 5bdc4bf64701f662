/* Prints the tables as manual pages, in man(7) format. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/help.h"
#include "version.h"

/* Escapes text for groff: '-' becomes a minus, '\' is doubled, and no line starts like a
 * request. */
static void help_man_text_n(const char *s, size_t len)
{
    if (len && (*s == '.' || *s == '\''))
        fputs("\\&", stdout);
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '-')
            fputs("\\-", stdout);
        else if (s[i] == '\\')
            fputs("\\e", stdout);
        else
            putchar(s[i]);
    }
}

static void help_man_text(const char *s)
{
    help_man_text_n(s, strlen(s));
}

static void help_man_head(const char *name, const char *summary)
{
    fputs(".TH \"", stdout);
    for (const char *p = name; *p; p++)
        putchar(toupper((unsigned char)*p));
    printf("\" 1 \"\" \"ripcord " RIPCORD_VERSION "\" \"User Commands\"\n.SH NAME\n");
    help_man_text(name);
    fputs(" \\- ", stdout);
    help_man_text(summary);
    putchar('\n');
}

static void help_man_prose(const char *s)
{
    while (*s) {
        const char *end = strstr(s, "\n\n");
        size_t len = end ? (size_t)(end - s) : strlen(s);

        help_man_text_n(s, len);
        fputs(end ? "\n.PP\n" : "\n", stdout);
        s += len + (end ? 2 : 0);
    }
}

static void help_man_option(const struct cli_option *o)
{
    fputs(".TP\n", stdout);
    if (o->letter)
        printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB", stdout);
    help_man_text("--");
    help_man_text(o->name);
    fputs("\\fR", stdout);
    if (o->arg) {
        fputs(" \\fI", stdout);
        help_man_text(o->arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    help_man_text(o->help);
    putchar('\n');
}

static void help_man_group(const struct cli_group *g)
{
    printf(".SS %s\n", g->title);
    for (const struct cli_option *o = g->options; o->name; o++)
        help_man_option(o);
}

static void help_man_examples(const char *s)
{
    printf(".SH EXAMPLES\n");
    while (*s) {
        size_t command = strcspn(s, "\t"), comment = strcspn(s + command + 1, "\n");

        fputs(".TP\n", stdout);
        help_man_text_n(s + command + 1, comment);
        fputs("\n.EX\n", stdout);
        help_man_text_n(s, command);
        fputs("\n.EE\n", stdout);
        s += command + 1 + comment;
        s += *s == '\n';
    }
}

static void help_man_entries(const char *title, const struct help_entry *e)
{
    printf(".SH %s\n", title);
    for (; e->name; e++) {
        fputs(".TP\n\\fB", stdout);
        help_man_text(e->name);
        fputs("\\fR\n", stdout);
        help_man_text(e->text);
        putchar('\n');
    }
}

static void help_man_synopsis(const struct cli_command *cmd)
{
    const char *rest = cmd->usage, *part;
    size_t len;

    fputs(".SH SYNOPSIS\n", stdout);
    for (bool first = true; (part = help_usage_next(&rest, &len)); first = false) {
        fputs(first ? ".B ripcord\n" : ".br\n.B ripcord\n", stdout);
        if (!first)
            printf("%s ", cmd->name);
        help_man_text_n(part, len);
        putchar('\n');
    }
}

void help_man_command(const struct cli_command *cmd)
{
    char name[64];

    snprintf(name, sizeof(name), "ripcord-%s", cmd->name);
    help_man_head(name, cmd->summary);
    help_man_synopsis(cmd);
    fputs(".SH DESCRIPTION\n", stdout);
    help_man_prose(cmd->details ? cmd->details : cmd->summary);
    fputs(".SH OPTIONS\n", stdout);
    for (const struct cli_group *const *g = cmd->groups; g && *g; g++)
        help_man_group(*g);
    help_man_group(&cli_global_group);
    if (cmd->examples)
        help_man_examples(cmd->examples);
    fputs(".SH SEE ALSO\n.BR ripcord (1)\n", stdout);
}

void help_man_overview(void)
{
    help_man_head("ripcord", "sandboxes for AI agents");
    fputs(".SH SYNOPSIS\n.B ripcord\n[\\fB\\-\\-root\\fR \\fIDIR\\fR] [\\fB\\-\\-json\\fR] "
          "\\fICOMMAND\\fR ...\n.SH DESCRIPTION\n",
          stdout);
    help_man_prose(help_about);
    fputs(".SH COMMANDS\n", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf(".TP\n.BR ripcord\\-%s (1)\n", (*c)->name);
        help_man_text((*c)->summary);
        putchar('\n');
    }
    fputs(".SH OPTIONS\n", stdout);
    help_man_group(&cli_global_group);
    help_man_entries("EXIT STATUS", help_statuses);
    help_man_entries("ENVIRONMENT", help_environment);
    help_man_entries("FILES", help_files);
    help_man_entries("LIMITS", help_limits);
}
