/* The tables as manual pages, in man(7). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/help.h"
#include "version.h"

/* Text as groff wants it: '-' as a real minus, '\' doubled, no line that begins like a request. */
static void text_n(const char *s, size_t len)
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

static void text(const char *s)
{
    text_n(s, strlen(s));
}

static void head(const char *name, const char *summary)
{
    fputs(".TH \"", stdout);
    for (const char *p = name; *p; p++)
        putchar(toupper((unsigned char)*p));
    printf("\" 1 \"\" \"ripcord " RIPCORD_VERSION "\" \"User Commands\"\n.SH NAME\n");
    text(name);
    fputs(" \\- ", stdout);
    text(summary);
    putchar('\n');
}

static void prose(const char *s)
{
    while (*s) {
        const char *end = strstr(s, "\n\n");
        size_t len = end ? (size_t)(end - s) : strlen(s);

        text_n(s, len);
        fputs(end ? "\n.PP\n" : "\n", stdout);
        s += len + (end ? 2 : 0);
    }
}

static void option(const struct cli_option *o)
{
    fputs(".TP\n", stdout);
    if (o->letter)
        printf("\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB", stdout);
    text("--");
    text(o->name);
    fputs("\\fR", stdout);
    if (o->arg) {
        fputs(" \\fI", stdout);
        text(o->arg);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    text(o->help);
    putchar('\n');
}

static void group(const struct cli_group *g)
{
    printf(".SS %s\n", g->title);
    for (const struct cli_option *o = g->options; o->name; o++)
        option(o);
}

static void examples(const char *s)
{
    printf(".SH EXAMPLES\n");
    while (*s) {
        size_t command = strcspn(s, "\t"), comment = strcspn(s + command + 1, "\n");

        fputs(".TP\n", stdout);
        text_n(s + command + 1, comment);
        fputs("\n.EX\n", stdout);
        text_n(s, command);
        fputs("\n.EE\n", stdout);
        s += command + 1 + comment;
        s += *s == '\n';
    }
}

static void entries(const char *title, const struct help_entry *e)
{
    printf(".SH %s\n", title);
    for (; e->name; e++) {
        fputs(".TP\n\\fB", stdout);
        text(e->name);
        fputs("\\fR\n", stdout);
        text(e->text);
        putchar('\n');
    }
}

void help_man_command(const struct cli_command *cmd)
{
    char name[64];

    snprintf(name, sizeof(name), "ripcord-%s", cmd->name);
    head(name, cmd->summary);
    fputs(".SH SYNOPSIS\n.B ripcord\n", stdout);
    text(cmd->usage);
    fputs("\n.SH DESCRIPTION\n", stdout);
    prose(cmd->details ? cmd->details : cmd->summary);
    fputs(".SH OPTIONS\n", stdout);
    for (const struct cli_group *const *g = cmd->groups; g && *g; g++)
        group(*g);
    group(&cli_global_group);
    if (cmd->examples)
        examples(cmd->examples);
    fputs(".SH SEE ALSO\n.BR ripcord (1)\n", stdout);
}

void help_man_overview(void)
{
    head("ripcord", "sandboxes for AI agents");
    fputs(".SH SYNOPSIS\n.B ripcord\n[\\fB\\-\\-root\\fR \\fIDIR\\fR] [\\fB\\-\\-json\\fR] "
          "\\fICOMMAND\\fR ...\n.SH DESCRIPTION\n",
          stdout);
    prose(help_about);
    fputs(".SH COMMANDS\n", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf(".TP\n.BR ripcord\\-%s (1)\n", (*c)->name);
        text((*c)->summary);
        putchar('\n');
    }
    fputs(".SH OPTIONS\n", stdout);
    group(&cli_global_group);
    entries("EXIT STATUS", help_statuses);
    entries("ENVIRONMENT", help_environment);
    entries("FILES", help_files);
}
