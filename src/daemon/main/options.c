#include "daemon/main/options.h"

#include <stddef.h>
#include <string.h>

#include "lib/base/macro.h"
#include "lib/base/strv.h"

struct option_def {
    const char *name, *value; /* value NULL: a switch */
    size_t offset;
    const char *help; /* NULL: hidden, for tests */
};

#define AT(member) offsetof(struct options, member)

/* clang-format off */
static const struct option_def defs[] = {
    {"root",         "DIR",   AT(root),         "keep state in DIR/state and DIR/run (env RIPCORD_ROOT)"},
    {"listen",       "ADDR",  AT(listen),       "also listen on this TCP address, e.g. 127.0.0.1:7070; requests need the token"},
    {"allow-remote", NULL,    AT(allow_remote), "allow an ADDR that other machines can reach; the traffic is not encrypted"},
    {"log-level",    "LEVEL", AT(log_level),    "error, warn, info or debug"},
    {"log-json",     NULL,    AT(log_json),     "log as JSON lines"},
    {"ready-fd",     "N",     AT(ready_fd),     "write 'ready' to this descriptor when the socket answers"},
    {"foreground",   NULL,    AT(foreground),   "stay in the foreground (always the case; accepted for service managers)"},
    {"print-config", NULL,    AT(print_config), "print the effective configuration and exit"},
    {"help-config",  NULL,    AT(help_config),  "list the keys of ripcord.yaml and exit"},
    {"version",      NULL,    AT(version),      "print the version and exit"},
    {"help",         NULL,    AT(help),         "print this help and exit"},
    {"engine",       "NAME",  AT(engine),       NULL},
};
/* clang-format on */

static const struct option_def *daemon_options_find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++)
        if (strlen(defs[i].name) == len && memcmp(defs[i].name, name, len) == 0)
            return &defs[i];
    return NULL;
}

static int daemon_options_unknown(const char *arg, size_t len, struct err *err)
{
    const char *names[ARRAY_SIZE(defs)];
    const char *near;

    for (size_t i = 0; i < ARRAY_SIZE(defs); i++)
        names[i] = defs[i].name;
    err_set(err, ERR_INVALID, "unknown option '%.*s'", (int)len + 2, arg);
    near = strv_nearest(arg + 2, names, ARRAY_SIZE(defs));
    return near ? err_hint(err, "Did you mean '--%s'?", near)
                : err_hint(err, "Run 'ripcordd --help' to list the options.");
}

int options_parse(struct options *ret, int argc, char **argv, struct err *err)
{
    *ret = (struct options){0};
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *eq;
        const struct option_def *d;
        size_t len;

        if (strncmp(arg, "--", 2) != 0)
            return err_set(err, ERR_INVALID, "unexpected argument '%s'", arg);
        len = strcspn(arg + 2, "=");
        eq = arg[2 + len] ? arg + 3 + len : NULL;
        d = daemon_options_find(arg + 2, len);
        if (!d)
            return daemon_options_unknown(arg, len, err);
        if (!d->value && eq)
            return err_set(err, ERR_INVALID, "option '--%s' does not take a value", d->name);
        if (d->value && !eq && i + 1 >= argc)
            return err_set(err, ERR_INVALID, "option '--%s' needs a value (%s)", d->name, d->value);
        if (d->value)
            *(const char **)((char *)ret + d->offset) = eq ? eq : argv[++i];
        else
            *(bool *)((char *)ret + d->offset) = true;
    }
    return 0;
}

void options_help(FILE *f)
{
    fputs("Usage: ripcordd [OPTIONS]\n\nThe ripcord daemon. 'ripcord' starts it when needed.\n\n",
          f);
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++) {
        char left[32];

        if (!defs[i].help)
            continue;
        snprintf(left, sizeof(left), "--%s %s", defs[i].name, defs[i].value ? defs[i].value : "");
        fprintf(f, "  %-20s %s\n", left, defs[i].help);
    }
}
