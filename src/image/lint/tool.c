#include "image/lint/tool.h"

#include <string.h>

#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

/* clang-format off */
static const struct lint_tool tools[] = {
    {"pip", "pip pip2 pip3", "install download wheel", "~/.cache/pip", "PIP_CACHE_DIR", "--cache-dir",
     "--no-cache-dir --no-cache", "PIP_NO_CACHE_DIR", "cache purge"},
    {"uv", "uv", "pip sync add tool run", "~/.cache/uv", "UV_CACHE_DIR", "--cache-dir",
     "--no-cache --no-cache-dir -n", "UV_NO_CACHE", "cache clean|cache prune"},
    {"poetry", "poetry", "install add update", "~/.cache/pypoetry", "POETRY_CACHE_DIR", NULL,
     "--no-cache", NULL, "cache clear"},
    {"npm", "npm", "install i ci add update", "~/.npm", "NPM_CONFIG_CACHE npm_config_cache", "--cache",
     "--no-cache", NULL, "cache clean|cache rm"},
    {"yarn", "yarn yarnpkg", "install add", "~/.cache/yarn /usr/local/share/.cache/yarn ~/.yarn", "YARN_CACHE_FOLDER",
     "--cache-folder", "", NULL, "cache clean"},
    {"pnpm", "pnpm", "install i add", "~/.local/share/pnpm /pnpm", "PNPM_HOME npm_config_store_dir pnpm_config_store_dir", "--store-dir",
     "", NULL, "store prune"},
    {"apt", "apt-get apt", "install upgrade dist-upgrade full-upgrade", "/var/cache/apt /var/lib/apt", NULL, NULL,
     "", NULL, "clean|autoclean"},
    {"apk", "apk", "add upgrade", "/var/cache/apk /etc/apk/cache", NULL, "--cache-dir", "--no-cache", NULL, "cache clean"},
    {"dnf", "dnf yum microdnf", "install upgrade update", "/var/cache/dnf /var/cache/yum /var/cache/libdnf5", NULL, NULL,
     "", NULL, "clean all|clean packages"},
    {"go", "go", "build install get mod test", "~/.cache/go-build /go/pkg/mod ~/go/pkg/mod", "GOCACHE GOMODCACHE", NULL,
     "", NULL, "clean -modcache|clean -cache"},
    {"cargo", "cargo", "build install fetch test", "/usr/local/cargo ~/.cargo", "CARGO_HOME CARGO_TARGET_DIR", NULL,
     "", NULL, ""},
    {"maven", "mvn mvnw", "package install verify compile dependency:go-offline dependency:resolve", "~/.m2", NULL, NULL,
     "", NULL, ""},
    {"composer", "composer", "install update require", "~/.cache/composer ~/.composer/cache", "COMPOSER_CACHE_DIR", NULL,
     "--no-cache", NULL, "clear-cache|clearcache"},
};
/* clang-format on */

bool tool_has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = words; n && (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (!p[n] || p[n] == ' '))
            return true;
    return false;
}

/* The number of words of the program: `python -m pip` has three. */
static size_t tool_name_length(const struct shell_command *c)
{
    const char *name = shell_name(c);
    const struct shell_word *a = shell_arg(c, 0), *b = shell_arg(c, 1);

    if (!strncmp(name, "python", 6) && a && b && STREQ(a->text, "-m"))
        return 3;
    return 1;
}

const struct shell_word *tool_arg(const struct shell_command *c, size_t i)
{
    return shell_arg(c, tool_name_length(c) - 1 + i);
}

/* pip3.11 is pip. */
static bool tool_is_program(const struct lint_tool *t, const char *program)
{
    return tool_has_word(t->programs, program) ||
           (STREQ(t->name, "pip") && !strncmp(program, "pip3.", 5));
}

/* The first argument that is not an option. */
static const char *tool_subcommand(const struct shell_command *c)
{
    const struct shell_word *w;

    for (size_t i = 0; (w = tool_arg(c, i)); i++)
        if (*w->text != '-')
            return w->text;
    return "";
}

const struct lint_tool *tool_of(const struct shell_command *c, bool *ret_installs)
{
    bool module = tool_name_length(c) == 3; /* python -m pip */
    const char *program = module ? shell_arg(c, 1)->text : shell_name(c), *sub;

    for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
        if (!tool_is_program(&tools[i], program))
            continue;
        sub = tool_subcommand(c);
        *ret_installs = *sub ? tool_has_word(tools[i].installs, sub) : STREQ(tools[i].name, "yarn");
        return &tools[i];
    }
    return NULL;
}

bool tool_cleans(const struct lint_tool *t, const struct shell_command *c)
{
    const struct shell_word *a = tool_arg(c, 0), *b = tool_arg(c, 1);
    const char *p = t->clean;

    while (a && *p) {
        size_t n = strcspn(p, "|");
        _cleanup_free_ char *words = xstrndup(p, n), *both = NULL;

        both = b ? xasprintf("%s %s", a->text, b->text) : xstrdup(a->text);
        if (STREQ(words, both) || STREQ(words, a->text))
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

/* ---- folders ---- */

static const char *tool_home_of(const struct dockerfile_config *at, char buf[static 256])
{
    const char *home = config_get(at, "HOME"), *user = at->user;

    if (home)
        return home;
    if (!user || !*user || STREQ(user, "root") || STREQ(user, "0") || !strncmp(user, "root:", 5) ||
        !strncmp(user, "0:", 2))
        return "/root";
    snprintf(buf, 256, "/home/%.*s", (int)MIN(strcspn(user, ":"), 200), user);
    return buf;
}

static char *tool_resolve(const char *folder, size_t n, const struct dockerfile_config *at)
{
    char buf[256];

    if (*folder != '~')
        return xstrndup(folder, n);
    return xasprintf("%s%.*s", tool_home_of(at, buf), (int)n - 1, folder + 1);
}

char *tool_folder(const struct lint_tool *t, const struct dockerfile_config *at)
{
    return tool_resolve(t->folders, strcspn(t->folders, " "), at);
}

static bool tool_is_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);

    while (n > 1 && folder[n - 1] == '/')
        n--;
    return !strncmp(path, folder, n) && (!path[n] || path[n] == '/' || n == 1);
}

bool tool_paths_meet(const char *a, const char *b)
{
    return tool_is_below(a, b) || tool_is_below(b, a);
}

bool tool_uses(const struct lint_tool *t, const struct dockerfile_config *at,
               const struct shell_command *c, const char *target)
{
    const struct shell_word *option = t->option ? shell_flag(c, t->option) : NULL;
    const char *equals = option ? strchr(option->text, '=') : NULL;
    const char *p = t->variable ? t->variable : "";

    if (option && (equals || option + 1 < c->words + c->n))
        return tool_paths_meet(target, equals ? equals + 1 : option[1].text);
    while (*p) {
        size_t n = strcspn(p, " ");
        _cleanup_free_ char *name = xstrndup(p, n);
        const struct shell_word *w = NULL;
        const char *folder = shell_assigned(c, name, &w); /* on the command, or in the stage */

        if (!folder)
            folder = config_get(at, name);
        if (folder && (tool_paths_meet(target, folder) || !strchr(t->variable, ' ')))
            return tool_paths_meet(target, folder);
        p += n + (p[n] == ' ');
    }
    for (p = t->folders; *p; p += strcspn(p, " "), p += *p == ' ') {
        _cleanup_free_ char *folder = tool_resolve(p, strcspn(p, " "), at);

        if (tool_paths_meet(target, folder))
            return true;
    }
    return false;
}
