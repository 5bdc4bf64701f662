#include "lib/os/command.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
