#include "daemon/core/sandbox/command-check.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/command-size.h"
#include "lib/base/strv.h"

enum { ENOUGH_ROOM = 64 << 10 }; /* more than the variables take that every sandbox has */

int command_check_argv(char *const *argv, struct err *err)
{
    char *const *at = command_oversized(argv);

    if (!at)
        return 0;
    err_set(err, ERR_INVALID,
            "field 'argv[%zu]': the argument is too long (%zu bytes, Linux takes at most %d)",
            (size_t)(at - argv), strlen(*at), COMMAND_STRING_MAX - 1);
    return err_hint(err, COMMAND_SIZE_HINT);
}

int command_check_variable(const char *pair, struct err *err)
{
    if (strlen(pair) < COMMAND_STRING_MAX)
        return 0;
    err_set(err, ERR_INVALID,
            "variable '%.*s' is too long (%zu bytes as NAME=VALUE, Linux takes at most %d)",
            (int)MIN(strcspn(pair, "="), (size_t)100), pair, strlen(pair), COMMAND_STRING_MAX - 1);
    return err_hint(err, COMMAND_SIZE_HINT);
}

int command_check_env(char *const *env, struct err *err)
{
    size_t size = command_size(env);

    if (size <= COMMAND_MAX)
        return 0;
    err_set(err, ERR_INVALID,
            "field 'env': the variables are too large (%zu bytes with a NUL and a pointer for "
            "each, Linux takes at most %d, which is 2 MiB)",
            size, COMMAND_MAX);
    return err_hint(err, COMMAND_SIZE_HINT);
}

int command_check_total(const struct sandbox_spec *spec, char *const *argv, char *const *env,
                        struct err *err)
{
    size_t args = command_size(argv), rough = args + command_size(env) + command_size(spec->env);
    _cleanup_strv_ char **of_sandbox = NULL;
    _cleanup_free_ char **all = NULL;
    size_t vars;

    if (rough <= COMMAND_MAX - ENOUGH_ROOM)
        return 0;
    /* A sandbox whose creation is still queued has no user yet. */
    of_sandbox = spec_environment(spec->user ? spec->user : "", spec->env, NULL);
    all = strv_env_merge((char *const *const[]){of_sandbox, env}, 2);
    vars = command_size(all);
    if (args + vars <= COMMAND_MAX)
        return 0;
    if (!argv)
        return command_check_env(all, err);
    err_set(err, ERR_INVALID,
            "the command is too large: %zu bytes of arguments and %zu bytes of variables, with a "
            "NUL and a pointer for each (Linux takes at most %d together, which is 2 MiB)",
            args, vars, COMMAND_MAX);
    return err_hint(err, COMMAND_SIZE_HINT);
}
