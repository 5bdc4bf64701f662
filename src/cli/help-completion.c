/*
 * Prints the tables as completion scripts. A script asks a running daemon for the names of
 * sandboxes, execs and images when it runs; all other words are in the script.
 */
#include <stdio.h>
#include <string.h>

#include "cli/help.h"
#include "cli/options.h"
#include "lib/base/macro.h"

/* Prints s for use in single quotes of a shell. */
static void help_completion_quoted(const char *s, const char *escape)
{
    for (; *s; s++) {
        if (*s == '\'')
            fputs("'\\''", stdout);
        else if (strchr(escape, *s))
            printf("\\%c", *s);
        else
            putchar(*s);
    }
}

static void help_completion_command_names(void)
{
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf("%s%s", c == cli_commands ? "" : " ", (*c)->name);
}

/* Whether a positional of the command is of this kind ("sandbox", "exec", …). */
static bool help_completion_takes(const struct cli_command *cmd, const char *kind)
{
    return cmd->complete && strstr(cmd->complete, kind);
}

static bool help_completion_seen_before(const struct cli_command *const *upto, size_t index,
                                        const struct cli_option *o)
{
    const struct cli_option *other;

    for (const struct cli_command *const *c = cli_commands; c <= upto; c++)
        for (size_t i = 0; (other = cli_option_at(*c, i)); i++) {
            if (c == upto && i >= index)
                return false;
            if (strcmp(other->name, o->name) == 0)
                return true;
        }
    return false;
}

/* The options with a value, each name once: the next word is their value, not a positional. */
static void help_completion_bash_valued(void)
{
    const struct cli_option *o;

    fputs("--root", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        for (size_t i = 0; (o = cli_option_at(*c, i)); i++) {
            if (!o->arg || strcmp(o->name, "root") == 0 || help_completion_seen_before(c, i, o))
                continue;
            printf("|--%s", o->name);
            if (o->letter)
                printf("|-%c", o->letter);
        }
}

static void help_completion_bash_values(void)
{
    const struct cli_option *o;

    for (const struct cli_command *const *c = cli_commands; *c; c++)
        for (size_t i = 0; (o = cli_option_at(*c, i)); i++) {
            if (!o->values || help_completion_seen_before(c, i, o))
                continue;
            printf("        --%s) ", o->name);
            if (strcmp(o->values, "@image") == 0)
                fputs("_ripcord_words \"host default $(\"${base[@]}\" image ls -q 2>/dev/null)\"",
                      stdout);
            else if (o->values[0] == '@')
                printf("COMPREPLY=($(compgen -%c -- \"$cur\"))",
                       strcmp(o->values, "@dir") == 0 ? 'd' : 'f');
            else
                printf("_ripcord_words '%s'", o->values);
            fputs("; return ;;\n", stdout);
        }
}

static void help_completion_bash_command(const struct cli_command *cmd)
{
    const struct cli_option *o;

    printf("        %s) opts='", cmd->name);
    for (size_t i = 0; (o = cli_option_at(cmd, i)); i++)
        printf("%s--%s", i ? " " : "", o->name);
    printf("' kinds=(%s)", cmd->complete ? cmd->complete : "");
    if (cmd->words)
        printf(" firsts='%s'", cmd->words);
    fputs(" ;;\n", stdout);
}

/* Bash splits words at ':', so NAME:PATH is three words: only NAME: is completed. */
static const char bash_positionals[] =
    "    n=${#kinds[@]}\n"
    "    if ((words < n)); then\n"
    "        kind=${kinds[words]}\n"
    "    elif ((n)) && [[ ${kinds[n - 1]} == *+ ]]; then\n"
    "        kind=${kinds[n - 1]}\n"
    "    fi\n"
    "    case $cur:${kind%+} in\n"
    "    -*) _ripcord_words \"$opts\" ;;\n"
    "    *:word) _ripcord_words \"$firsts\" ;;\n"
    "    *:topic) _ripcord_words \"$commands\" ;;\n"
    "    *:sandbox) _ripcord_words \"$(\"${base[@]}\" ls -q 2>/dev/null)\" ;;\n"
    "    *:exec) _ripcord_words \"last $(\"${base[@]}\" ps \"$first\" -aq 2>/dev/null)\" ;;\n"
    "    *:image) _ripcord_words \"$(\"${base[@]}\" image ls -q 2>/dev/null)\" ;;\n"
    "    *:path)\n"
    "        [[ $cur == : || $prev == : ]] && return\n"
    "        _ripcord_words \"$(\"${base[@]}\" ls -q 2>/dev/null | sed 's/$/:/')\"\n"
    "        ((${#COMPREPLY[@]} == 0)) || compopt -o nospace 2>/dev/null\n"
    "        COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "complete -o default -F _ripcord ripcord\n";

void help_bash(void)
{
    fputs("# bash completion for ripcord; made by 'ripcord help --format bash'\n"
          "_ripcord_words() { COMPREPLY=($(compgen -W \"$1\" -- \"$cur\")); }\n"
          "_ripcord() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    local commands='",
          stdout);
    help_completion_command_names();
    fputs("'\n"
          "    local cmd= opts= firsts= first= kind= words=0 n i\n"
          "    local -a kinds=() base=(ripcord --no-start)\n"
          "    COMPREPLY=()\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        case ${COMP_WORDS[i]} in\n"
          "        --root|--host) base+=(\"${COMP_WORDS[i]}\" \"${COMP_WORDS[i+1]}\"); ((i++)) ;;\n"
          "        ",
          stdout);
    help_completion_bash_valued();
    fputs(") ((i++)) ;;\n"
          "        -*) ;;\n"
          "        :) ((words--, i++)) ;;\n"
          "        *)\n"
          "            if [[ -z $cmd ]]; then\n"
          "                cmd=${COMP_WORDS[i]}\n"
          "            else\n"
          "                ((words++ == 0)) && first=${COMP_WORDS[i]}\n"
          "            fi\n"
          "            ;;\n"
          "        esac\n"
          "    done\n"
          "    case $prev in\n",
          stdout);
    help_completion_bash_values();
    fputs("    esac\n"
          "    case $cmd in\n"
          "        '') _ripcord_words \"$commands --root --host --no-start --json --help "
          "--version\"\n"
          "            return ;;\n",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        help_completion_bash_command(*c);
    fputs("    esac\n", stdout);
    fputs(bash_positionals, stdout);
}

static void help_completion_zsh_option(const struct cli_option *o)
{
    const char *repeat = o->arg && strstr(o->help, "repeated") ? "*" : "";

    if (o->letter)
        printf(" \\\n            '%s'{-%c,--%s%s}'[", repeat, o->letter, o->name,
               o->arg ? "=" : "");
    else
        printf(" \\\n            '%s--%s%s[", repeat, o->name, o->arg ? "=" : "");
    help_completion_quoted(o->help, "[]:");
    putchar(']');
    if (o->arg) {
        putchar(':');
        help_completion_quoted(o->arg, "[]:");
        putchar(':');
        if (o->values && strcmp(o->values, "@image") == 0)
            fputs("_ripcord_images", stdout);
        else if (o->values && o->values[0] == '@')
            fputs(strcmp(o->values, "@dir") == 0 ? "_files -/" : "_files", stdout);
        else if (o->values)
            printf("(%s)", o->values);
    }
    putchar('\'');
}

static void help_completion_zsh_command(const struct cli_command *cmd)
{
    const struct cli_option *o;

    printf("    %s)\n        _arguments -S", cmd->name);
    for (size_t i = 0; (o = cli_option_at(cmd, i)); i++)
        help_completion_zsh_option(o);
    if (help_completion_takes(cmd, "sandbox+"))
        fputs(" \\\n            '*:sandbox:_ripcord_sandboxes'", stdout);
    else if (help_completion_takes(cmd, "sandbox"))
        fputs(" \\\n            '1:sandbox:_ripcord_sandboxes'", stdout);
    if (help_completion_takes(cmd, "exec"))
        fputs(" \\\n            '2:exec:_ripcord_execs'", stdout);
    if (help_completion_takes(cmd, "image+"))
        fputs(" \\\n            '*:image:_ripcord_images'", stdout);
    if (help_completion_takes(cmd, "path"))
        fputs(" \\\n            '*:path:_ripcord_paths'", stdout);
    if (cmd->words)
        printf(" \\\n            '1:action:(%s)'", cmd->words);
    if (help_completion_takes(cmd, "command"))
        fputs(" \\\n            '*::command:_normal'", stdout);
    fputs(" ;;\n", stdout);
}

void help_zsh(void)
{
    fputs("#compdef ripcord\n"
          "# made by 'ripcord help --format zsh'\n"
          "_ripcord_sandboxes() {\n"
          "    local -a names\n"
          "    names=(${(f)\"$(ripcord --no-start ls -q 2>/dev/null)\"})\n"
          "    compadd -a names\n"
          "}\n"
          "_ripcord_execs() {\n"
          "    local -a ids\n"
          "    ids=(last ${(f)\"$(ripcord --no-start ps ${(Q)words[2]} -aq 2>/dev/null)\"})\n"
          "    compadd -a ids\n"
          "}\n"
          "_ripcord_images() {\n"
          "    local -a names\n"
          "    names=(host default ${(f)\"$(ripcord --no-start image ls -q 2>/dev/null)\"})\n"
          "    compadd -a names\n"
          "}\n"
          "_ripcord_paths() {\n"
          "    local -a names\n"
          "    names=(${(f)\"$(ripcord --no-start ls -q 2>/dev/null)\"})\n"
          "    compadd -S : -a names\n"
          "    _files\n"
          "}\n"
          "_ripcord() {\n"
          "    local -a commands\n"
          "    commands=(\n",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf("        '%s:", (*c)->name);
        help_completion_quoted((*c)->summary, ":");
        fputs("'\n", stdout);
    }
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $words[1] in\n",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        help_completion_zsh_command(*c);
    fputs("    esac\n}\n_ripcord \"$@\"\n", stdout);
}

static void help_completion_fish_option(const struct cli_command *cmd, const struct cli_option *o)
{
    printf("complete -c ripcord -n '__fish_seen_subcommand_from %s' -l %s", cmd->name, o->name);
    if (o->letter)
        printf(" -s %c", o->letter);
    if (o->arg)
        fputs(o->values && strcmp(o->values, "@dir") == 0 ? " -r -a '(__fish_complete_directories)'"
              : o->values && strcmp(o->values, "@image") == 0
                  ? " -x -a 'host default (ripcord --no-start image ls -q 2>/dev/null)'"
              : o->values && o->values[0] == '@' ? " -r -F"
                                                 : " -x",
              stdout);
    if (o->values && o->values[0] != '@')
        printf(" -a '%s'", o->values);
    fputs(" -d '", stdout);
    for (const char *p = o->help; *p; p++)
        printf("%s%c", *p == '\'' || *p == '\\' ? "\\" : "", *p);
    fputs("'\n", stdout);
}

/* fish does not count positionals: it offers the names of all kinds that a command takes. */
static const struct {
    const char *kind, *names, *more;
} fish_kinds[] = {
    {"sandbox", "ripcord --no-start ls -q 2>/dev/null", ""},
    {"exec", "echo last; ripcord --no-start ps (commandline -opc)[3] -aq 2>/dev/null", ""},
    {"image", "ripcord --no-start image ls -q 2>/dev/null", ""},
    {"path", "ripcord --no-start ls -q 2>/dev/null | string replace -r \"\\$\" \":\"", " -F"},
};

void help_fish(void)
{
    const struct cli_option *o;

    fputs("# fish completion for ripcord; made by 'ripcord help --format fish'\n"
          "complete -c ripcord -f\n",
          stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf("complete -c ripcord -n __fish_use_subcommand -a %s -d '", (*c)->name);
        for (const char *p = (*c)->summary; *p; p++)
            printf("%s%c", *p == '\'' ? "\\" : "", *p);
        fputs("'\n", stdout);
        for (size_t i = 0; (o = cli_option_at(*c, i)); i++)
            help_completion_fish_option(*c, o);
        if ((*c)->words)
            printf("complete -c ripcord -n '__fish_seen_subcommand_from %s' -a '%s'\n", (*c)->name,
                   (*c)->words);
        for (size_t i = 0; i < ARRAY_SIZE(fish_kinds); i++)
            if (help_completion_takes(*c, fish_kinds[i].kind))
                printf("complete -c ripcord -n '__fish_seen_subcommand_from %s' -a '(%s)'%s\n",
                       (*c)->name, fish_kinds[i].names, fish_kinds[i].more);
    }
}
