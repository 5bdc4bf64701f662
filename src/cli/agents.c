#include "cli/agents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/path.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static int agents_check_socket(const char *id, const char *path, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        err_set(err, ERR_INVALID, "--ssh %s: '%s' is not a socket", id, path);
        return err_hint(err,
                        "Load the key into an agent first: run `eval $(ssh-agent)` and `ssh-add "
                        "KEY`, then use --ssh %s.",
                        id);
    }
    if (unix_connect_path(path, SOCK_STREAM | SOCK_NONBLOCK, &fd, &why) >= 0)
        return 0;
    err_set(err, ERR_INVALID, "--ssh %s: cannot connect to the agent at '%s' (%s)", id, path,
            strerror(why.errnum ? why.errnum : ENOENT));
    return err_hint(err, "Run `ssh-add -l` to check that the agent is running.");
}

static int agents_add(const char *arg, char ***agents, struct err *err)
{
    const char *equals = strchr(arg, '='), *given = equals ? equals + 1 : getenv("SSH_AUTH_SOCK");
    _cleanup_free_ char *id = xstrndup(arg, equals ? (size_t)(equals - arg) : strlen(arg));
    _cleanup_free_ char *path = NULL;
    int r = parse_secret_name(id, err);

    if (r < 0)
        return err_wrap(err, "--ssh '%.100s'", arg);
    if (strv_env_get(*agents, id))
        return err_set(err, ERR_INVALID, "--ssh: '%s' is given twice", id);
    if (!given || !*given) {
        err_set(err, ERR_INVALID, "--ssh %s: SSH_AUTH_SOCK is not set", id);
        return err_hint(err,
                        "Start an agent with `eval $(ssh-agent)` and `ssh-add`, or give its "
                        "socket: --ssh %s=SOCKET.",
                        id);
    }
    r = path_make_absolute(given, &path, err);
    if (r < 0)
        return r;
    r = agents_check_socket(id, path, err);
    if (r < 0)
        return r;
    strv_env_set(agents, id, path);
    return 0;
}

int agents_from_args(const struct cli_args *a, char ***ret, struct err *err)
{
    _cleanup_strv_ char **agents = NULL;
    const char *v;

    for (size_t i = 0; (v = args_next(a, "ssh", &i));) {
        int r = agents_add(v, &agents, err);

        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(agents);
    return 0;
}
