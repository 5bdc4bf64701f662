#include "lib/os/command.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/command-size.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

void command_reset_signals(void)
{
    sigset_t none;

    for (int sig = 1; sig <= 64; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The shell runs a script without "#!", as with execvp(3). */
static void command_run_by_shell(const char *path, char **argv, char **env)
{
    size_t n = strv_len(argv);
    char **args = xcalloc(n + 2, sizeof(char *));

    args[0] = (char *)"sh";
    args[1] = (char *)path;
    memcpy(args + 2, argv + 1, n * sizeof(char *)); /* with the NULL */
    execve("/bin/sh", args, env);
    free(args);
}

/* Returns only on failure: 0 for "not found", else the errno. */
static int command_try_run(const char *path, char **argv, char **env)
{
    execve(path, argv, env);
    if (errno == ENOEXEC)
        command_run_by_shell(path, argv, env);
    return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
}

/* E2BIG: the daemon has refused what is over the usual bounds, so the image's variables are too
 * large, or the stack limit here is lower than usual. */
static int command_explain_size(const char *name, struct err *err)
{
    char limit[FORMAT_MAX] = "unlimited";
    struct rlimit stack;

    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY)
        format_size(stack.rlim_cur, limit);
    err_set(err, ERR_LIMIT,
            "command '%.200s' cannot be run: its arguments and environment are too large for Linux "
            "(at most 128 KiB in one, and in all a quarter of the stack limit, which is %s)",
            name, limit);
    return err_hint(err, COMMAND_SIZE_HINT);
}

int command_explain(const char *name, int errnum, struct err *err)
{
    if (errnum == 0)
        return err_set(err, ERR_NOT_FOUND, "command '%.200s' not found", name);
    if (errnum == E2BIG)
        return command_explain_size(name, err);
    return err_set(err, ERR_DENIED, "command '%.200s' cannot be run: %s", name, strerror(errnum));
}

int command_exec(char **argv, char **env)
{
    const char *dir = strv_env_get(env, "PATH");
    int first = 0;

    if (strchr(argv[0], '/'))
        return command_try_run(argv[0], argv, env);
    while (dir && *dir) {
        size_t n = strcspn(dir, ":");
        char path[PATH_MAX];
        int r;

        if (n &&
            (size_t)snprintf(path, sizeof(path), "%.*s/%s", (int)n, dir, argv[0]) < sizeof(path)) {
            r = command_try_run(path, argv, env);
            if (r && r != EACCES)
                return r;
            first = first ? first : r;
        }
        dir += n + (dir[n] == ':');
    }
    return first;
}
