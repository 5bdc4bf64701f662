#include "cli/help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/command-size.h"
#include "lib/base/xalloc.h"

enum {
    HELP_EXAMPLES_MAX = 4096,
    HELP_WIDTH = 80,
    HELP_OPTION_COLUMN = 30,
    HELP_COMMAND_COLUMN = 11
};

const char help_about[] =
    "ripcord runs AI agents in persistent, hardened sandboxes that start in milliseconds. It "
    "stores the output of every command on disk, so no output is lost. No setup is needed: the "
    "first command starts the daemon.";

/* clang-format off */
const struct help_entry help_statuses[] = {
    { "0", "success" },
    { "1", "a system call failed" },
    { "2", "invalid option, name or value" },
    { "3", "not found" },
    { "4", "conflict with the current state, for example a running command" },
    { "5", "permission denied" },
    { "6", "limit exceeded" },
    { "7", "not supported by this machine or engine" },
    { "8", "the engine or the daemon failed or does not respond" },
    { "9", "timeout" },
    { "125", "run, exec, session, shell, attach, wait: ripcord itself failed; 126: the command cannot be run; 127: the command was not found; any other status is the command's own" },
    { NULL, NULL },
};
const struct help_entry help_environment[] = {
    { "RIPCORD_ROOT", "default for --root" },
    { "RIPCORD_HOST", "default for --host, unless --root is given" },
    { "RIPCORD_TOKEN", "API token for --host, as printed by 'ripcord token' on that machine; for addresses of this machine the default is the token in the state folder" },
    { "NO_COLOR", "disables colours if set and not empty" },
    { "XDG_DATA_HOME, XDG_RUNTIME_DIR", "base folders for state and sockets of an ordinary user" },
    { NULL, NULL },
};
const struct help_entry help_files[] = {
    { "/var/lib/ripcord, /run/ripcord", "state and sockets of root" },
    { "~/.local/share/ripcord, $XDG_RUNTIME_DIR/ripcord", "state and sockets of an ordinary user" },
    { "DIR/state, DIR/run, DIR/ripcord.yaml", "state, sockets and configuration with --root DIR" },
    { "/etc/ripcord/ripcord.yaml", "configuration" },
    { NULL, NULL },
};
const struct help_entry help_limits[] = {
    { "one argument or variable", "131,071 bytes: 128 KiB with the final NUL. A variable counts as NAME=VALUE" },
    { "all of a command", "2 MiB, as on Linux with the usual stack limit. Each argument and variable counts its bytes, a NUL and a pointer of 8 bytes. The variables of the sandbox and its image count too" },
    { "number of arguments, of variables", "only these sizes limit it" },
    { "secrets of a command", "32, 64 KiB together" },
    { "payload of a session", "16 MiB, and http.body_max in ripcord.yaml(5) limits the whole request" },
    { "labels of a sandbox", "64, with values of 1 KiB" },
    { "mounts of a sandbox", "32" },
    { NULL, NULL },
};
/* clang-format on */
_Static_assert(COMMAND_STRING_MAX - 1 == 131071 && COMMAND_MAX == 2 << 20, "help_limits");

/* Wraps text at HELP_WIDTH. column: the current column, and the indentation of further lines. */
static void help_wrap(const char *text, int column)
{
    int at = column;

    while (*text) {
        int len = (int)strcspn(text, " ");

        if (at > column && at + 1 + len > HELP_WIDTH) {
            printf("\n%*s", column, "");
            at = column;
        } else if (at > column) {
            putchar(' ');
            at++;
        }
        printf("%.*s", len, text);
        at += len;
        text += len;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void help_paragraphs(const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        size_t len = end ? (size_t)(end - text) : strlen(text);
        _cleanup_free_ char *copy = xstrndup(text, len);

        help_wrap(copy, 0);
        putchar('\n');
        text += len + (end ? 2 : 0);
    }
}

static void help_title(const char *text)
{
    printf("%s%s:%s\n", output_color(stdout, COLOR_BOLD), text, output_color(stdout, COLOR_NONE));
}

static void help_print_option(const struct cli_option *o)
{
    char left[96];
    int n;

    n = snprintf(left, sizeof(left), "  %c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
    fputs(left, stdout);
    if (n > HELP_OPTION_COLUMN - 2)
        printf("\n%*s", HELP_OPTION_COLUMN, "");
    else
        printf("%*s", HELP_OPTION_COLUMN - n, "");
    help_wrap(o->help, HELP_OPTION_COLUMN);
}

static void help_print_group(const struct cli_group *g)
{
    help_title(g->title);
    for (const struct cli_option *o = g->options; o->name; o++)
        help_print_option(o);
    putchar('\n');
}

/* text: lines "command\tcomment". The comment is printed above the command. */
static void help_print_examples(const char *text)
{
    help_title("Examples");
    while (*text) {
        int command = (int)strcspn(text, "\t"), comment;

        comment = (int)strcspn(text + command + 1, "\n");
        printf("  %s# %.*s%s\n  %.*s\n", output_color(stdout, COLOR_DIM), comment,
               text + command + 1, output_color(stdout, COLOR_NONE), command, text);
        text += command + 1 + comment;
        text += *text == '\n';
    }
}

const char *help_usage_next(const char **usage, size_t *ret_len)
{
    const char *at = *usage, *bar = strstr(at, " | ");

    *ret_len = bar ? (size_t)(bar - at) : strlen(at);
    *usage = bar ? bar + 3 : at + *ret_len;
    return *ret_len ? at : NULL;
}

/* Prints one line for each action. Only the first alternative in the text has the command's
 * name. */
static void help_print_usage(const struct cli_command *cmd)
{
    const char *rest = cmd->usage, *part;
    size_t len;

    for (bool first = true; (part = help_usage_next(&rest, &len)); first = false)
        printf("%s ripcord %s%s%.*s\n", first ? "Usage:" : "      ", first ? "" : cmd->name,
               first ? "" : " ", (int)len, part);
    putchar('\n');
}

void help_command(const struct cli_command *cmd)
{
    help_print_usage(cmd);
    if (cmd->details) {
        help_paragraphs(cmd->details);
    } else {
        _cleanup_free_ char *line = xasprintf("%s.", cmd->summary);

        line[0] = (char)(line[0] >= 'a' && line[0] <= 'z' ? line[0] - 'a' + 'A' : line[0]);
        help_paragraphs(line);
    }
    for (const struct cli_group *const *g = cmd->groups; g && *g; g++)
        help_print_group(*g);
    help_print_group(&cli_global_group);
    if (cmd->examples)
        help_print_examples(cmd->examples);
}

/* ---- one action: the parts of the command's texts that are about it ---- */

/* Whether the text begins with the action's name as a word. */
static bool help_is_about(const char *text, size_t len, const char *name)
{
    size_t n = strlen(name);

    return len > n && memcmp(text, name, n) == 0 && text[n] == ' ';
}

static bool help_is_about_any(const struct cli_command *cmd, const char *text, size_t len)
{
    for (const struct cli_action *a = cmd->actions; a->name; a++)
        if (help_is_about(text, len, a->name))
            return true;
    return false;
}

static void help_action_usage(const struct cli_command *cmd, const struct cli_action *a)
{
    const char *rest = cmd->usage + strlen(cmd->name) + 1, *part;
    size_t len;

    while ((part = help_usage_next(&rest, &len)))
        if (help_is_about(part, len, a->name) ||
            (len == strlen(a->name) && memcmp(part, a->name, len) == 0))
            printf("Usage: ripcord %s %.*s\n\n", cmd->name, (int)len, part);
}

/* A paragraph that begins with the name of an action is about it, and so are those after it up to
 * the next action. */
static void help_action_details(const struct cli_command *cmd, const struct cli_action *a)
{
    bool mine = false;
    const char *end;

    for (const char *p = cmd->details; *p; p = end + strspn(end, "\n")) {
        _cleanup_free_ char *copy = NULL;
        size_t len;

        end = strstr(p, "\n\n");
        end = end ? end : p + strlen(p);
        len = (size_t)(end - p);
        if (help_is_about_any(cmd, p, len))
            mine = help_is_about(p, len, a->name);
        if (!mine)
            continue;
        copy = xstrndup(p, len);
        help_paragraphs(copy);
    }
}

static void help_action_options(const struct cli_command *cmd, const struct cli_action *a)
{
    bool any = false;

    for (const struct cli_group *const *g = cmd->groups; g && *g; g++)
        for (const struct cli_option *o = (*g)->options; o->name; o++) {
            _cleanup_free_ char *word = xasprintf(" %s ", o->name);

            if (!strstr(a->options, word))
                continue;
            if (!any)
                help_title("Options");
            any = true;
            help_print_option(o);
        }
    if (any)
        putchar('\n');
}

static void help_action_examples(const struct cli_command *cmd, const struct cli_action *a)
{
    _cleanup_free_ char *start = xasprintf("ripcord %s %s", cmd->name, a->name);
    struct buf b = BUF_INIT(HELP_EXAMPLES_MAX);
    _cleanup_free_ char *text = NULL;

    for (const char *p = cmd->examples, *next; p && *p; p = next) {
        size_t len = strcspn(p, "\n");
        const char *at = memmem(p, strcspn(p, "\t"), start, strlen(start));

        next = p + len + (p[len] == '\n');
        if (at && !isalpha((unsigned char)at[strlen(start)]))
            (void)!buf_append(&b, p, len + (p[len] == '\n'));
    }
    if (!b.len)
        return;
    text = buf_steal(&b);
    help_print_examples(text);
}

void help_command_or_action(const struct cli_command *cmd, const char *word)
{
    const struct cli_action *a = word ? cli_find_action(cmd, word) : NULL;

    if (!a) {
        help_command(cmd);
        return;
    }
    help_action_usage(cmd, a);
    help_action_details(cmd, a);
    help_action_options(cmd, a);
    help_print_group(&cli_global_group);
    help_action_examples(cmd, a);
}

void help_overview(void)
{
    printf("Usage: ripcord [--root DIR | --host ADDR] [--json] COMMAND ...\n\n");
    help_wrap(help_about, 0);
    putchar('\n');
    help_title("Commands");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf("  %-*s%s\n", HELP_COMMAND_COLUMN, (*c)->name, (*c)->summary);
    putchar('\n');
    help_print_group(&cli_global_group);
    help_title("Try");
    printf("  ripcord run -- sh -c 'echo hello from $(id -un)'\n"
           "  ripcord up box && ripcord exec box -- touch f && ripcord exec box -- ls\n\n"
           "Run 'ripcord COMMAND --help' for details of a command. See also ripcord(1).\n");
}
