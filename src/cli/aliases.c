#include "cli/aliases.h"

#include <string.h>

#include "lib/base/macro.h"
#include "lib/base/strv.h"

/*
 * `same`: the word is taken as ours. Otherwise it only leads to a suggestion, and of several rows
 * with one word the first that the caller has is right (`load` in `ripcord image`). `hint` stands
 * for a suggestion.
 */
/* clang-format off */
static const struct {
    const char *word, *ours;
    bool same;
    const char *hint;
} alias_words[] = {
    {"build",     "image build",      true,  NULL},
    {"create",    "up",               true,  NULL},
    {"delete",    "rm",               true,  NULL},
    {"images",    "image ls",         true,  NULL},
    {"inspect",   "show",             true,  NULL},
    {"list",      "ls",               true,  NULL},
    {"pull",      "image pull",       true,  NULL},
    {"push",      "image push",       true,  NULL},
    {"remove",    "rm",               true,  NULL},
    {"rmi",       "image rm",         true,  NULL},
    {"start",     "up --no-create",   true,  NULL},
    {"unpause",   "resume",           true,  NULL},

    {"connect",   "shell",            false, NULL},
    {"copy",      "cp",               false, NULL},
    {"describe",  "show",             false, NULL},
    {"destroy",   "rm",               false, NULL},
    {"enter",     "shell",            false, NULL},
    {"execute",   "exec",             false, NULL},
    {"export",    "image export",     false, NULL},
    {"forward",   "port",             false, NULL},
    {"get",       "show",             false, NULL},
    {"history",   "show",             false, NULL},
    {"import",    "image import",     false, NULL},
    {"info",      "doctor",           false, NULL},
    {"lint",      "image lint",       false, NULL},
    {"load",      "import",           false, NULL},
    {"load",      "image import",     false, NULL},
    {"new",       "up",               false, NULL},
    {"save",      "export",           false, NULL},
    {"save",      "image export",     false, NULL},
    {"serve",     "daemon",           false, NULL},
    {"ssh",       "shell",            false, NULL},
    {"status",    "ls",               false, NULL},
    {"suspend",   "pause",            false, NULL},
    {"tail",      "logs",             false, NULL},
    {"terminate", "stop",             false, NULL},
    {"top",       "ps",               false, NULL},

    {"commit",    NULL, false, "A sandbox cannot become an image. Write a Dockerfile and run 'ripcord image build'."},
    {"login",     NULL, false, "Pulls and pushes use ~/.docker/config.json; or use 'ripcord image pull --username NAME --password-stdin'."},
    {"network",   NULL, false, "Choose the network of a sandbox: 'ripcord up NAME --network none', packages or open."},
    {"rename",    NULL, false, "A sandbox keeps its name. Copy its files: 'ripcord cp OLD: NEW:'."},
    {"restart",   NULL, false, "Run 'ripcord stop NAME', then 'ripcord up NAME'. For the daemon run 'ripcord daemon restart'."},
    {"stats",     NULL, false, "Run 'ripcord ps --totals', or add --stats to 'ripcord run' or 'ripcord exec'."},
    {"system",    NULL, false, "Run 'ripcord doctor', 'ripcord image prune' or 'ripcord cache prune'."},
    {"update",    NULL, false, "Run 'ripcord up NAME' with the changed options."},
    {"volume",    NULL, false, "/home/agent of a named sandbox is kept. Mount other folders with --mount SRC:DST."},
};

#define ALIAS_MAKE " run up "

static const struct alias_option alias_options[] = {
    {" run ", "--rm", "", NULL, NULL},
    {" ls ", "--all", "", NULL, NULL},
    {" ls ", "-a", "", NULL, NULL},
    {ALIAS_MAKE, "--volume", "mount", NULL, NULL},
    {ALIAS_MAKE, "-v", "mount", NULL, NULL},
    {ALIAS_MAKE, "-m", "memory", NULL, NULL},
    {ALIAS_MAKE, "-l", "label", NULL, NULL},
    {ALIAS_MAKE, "--pids-limit", "pids", NULL, NULL},
    {" run up exec session shell ", "--chdir", "workdir", NULL, NULL},
    {" run up exec session shell ", "--cwd", "workdir", NULL, NULL},
    {ALIAS_MAKE, "-p", NULL, "no port of a sandbox is published on this machine", "Run 'ripcord port NAME PORT' to reach a port of a sandbox, also one without a network."},
    {ALIAS_MAKE, "--publish", NULL, "no port of a sandbox is published on this machine", "Run 'ripcord port NAME PORT' to reach a port of a sandbox, also one without a network."},
    {" run ", "--name", NULL, "'run' removes its sandbox, which therefore needs no name", "Run 'ripcord up NAME', then 'ripcord exec NAME -- CMD'."},
    {ALIAS_MAKE, "--name", NULL, "the name is an argument", "Run 'ripcord up NAME'."},
    {ALIAS_MAKE, "--privileged", NULL, "a sandbox never has the rights of this machine's root", "Use --user 0 for root inside the sandbox."},
    {ALIAS_MAKE, "--cap-add", NULL, "a sandbox never gets more capabilities", "Use --user 0 for root inside the sandbox."},
    {ALIAS_MAKE, "--entrypoint", NULL, "a given command replaces the image's entry point, too", "Write the whole command after the options."},
    {ALIAS_MAKE, "--env-file", NULL, "variables are not read from a file", "Use --env NAME=VALUE, or --env NAME to pass a variable of this shell on."},
    {ALIAS_MAKE, "--restart", NULL, "commands are not started again", "Start a command in the background with 'ripcord exec NAME --detach -- CMD'."},
    {ALIAS_MAKE, "--read-only", NULL, "the files of an image are never changed: a sandbox writes to a layer of its own", "Leave the option out."},
    {ALIAS_MAKE, "--bind", NULL, "it takes one word here", "Use --mount SRC:DST, or --mount FOLDER for the same path inside."},
    {ALIAS_MAKE, "--ro-bind", NULL, "it takes one word here", "Use --mount SRC:DST:ro, or --mount FOLDER:ro for the same path inside."},
    {ALIAS_MAKE, "--unshare-net", NULL, "the network has a mode here", "Use --network none."},
    {ALIAS_MAKE, "--share-net", NULL, "the network has a mode here", "Use --network open."},
};
/* clang-format on */

const char *alias_command(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(alias_words); i++)
        if (alias_words[i].same && STREQ(alias_words[i].word, word))
            return alias_words[i].ours;
    return NULL;
}

const char *alias_hint(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(alias_words); i++)
        if (STREQ(alias_words[i].word, word))
            return alias_words[i].hint;
    return NULL;
}

/* Ours for this word, if its first word is among the names. */
static const char *aliases_ours(const char *word, const char *const *names, size_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(alias_words); i++) {
        const char *ours = alias_words[i].ours ? alias_words[i].ours : "";
        size_t len = strcspn(ours, " ");

        for (size_t k = 0; k < n && STREQ(alias_words[i].word, word); k++)
            if (strlen(names[k]) == len && memcmp(names[k], ours, len) == 0)
                return ours;
    }
    return NULL;
}

/* A typo in a word of another tool. */
static const char *aliases_nearest_word(const char *word, const char *const *names, size_t n)
{
    const char *words[ARRAY_SIZE(alias_words)], *near;
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(alias_words); i++)
        if (alias_words[i].same)
            words[count++] = alias_words[i].word;
    near = strv_nearest(word, words, count);
    return near ? aliases_ours(near, names, n) : NULL;
}

const char *alias_nearest(const char *word, const char *const *names, size_t n)
{
    const char *near = aliases_ours(word, names, n);

    if (near)
        return near;
    near = strv_nearest(word, names, n);
    return near ? near : aliases_nearest_word(word, names, n);
}

const struct alias_option *alias_option(const struct cli_command *cmd, const char *word, size_t len)
{
    char command[32];

    snprintf(command, sizeof(command), " %s ", cmd->name);
    for (size_t i = 0; i < ARRAY_SIZE(alias_options); i++) {
        const struct alias_option *o = &alias_options[i];

        if (strlen(o->name) == len && memcmp(o->name, word, len) == 0 &&
            strstr(o->commands, command))
            return o;
    }
    return NULL;
}
