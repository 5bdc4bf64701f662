/*
 * The sockets are non-blocking: connect(2) on a unix socket would block for ever if the engine
 * hangs with a full backlog. It is repeated until the deadline instead.
 */
#include "dockerapi/connect.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "dockerapi/docker.h"
#include "dockerapi/net.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

enum { RETRY_MS = 20 };

/* clang-format off */
static const struct symptom {
    int errnum;
    enum err_code code;
    const char *msg; /* %s: the address */
    const char *hint;
} symptoms[] = {
    {ENOENT, ERR_ENGINE, "engine at %s: not found (the socket does not exist)",
     "Start the engine ('systemctl start docker', or 'podman system service'), or set DOCKER_HOST to its address."},
    {ENOTDIR, ERR_ENGINE, "engine at %s: not found (a part of the path is not a folder)",
     "Set DOCKER_HOST to the address of the engine."},
    {ECONNREFUSED, ERR_ENGINE, "engine at %s: not running (connection refused)",
     "Start the engine ('systemctl start docker', or 'podman system service'). Its log shows why it ended."},
    {EACCES, ERR_DENIED, "engine at %s: permission denied",
     "Add the user to the socket's group ('usermod -aG docker USER', then log in again), or use a rootless engine."},
    {EPERM, ERR_DENIED, "engine at %s: permission denied",
     "Add the user to the socket's group ('usermod -aG docker USER', then log in again), or use a rootless engine."},
    {ENETUNREACH, ERR_ENGINE, "engine at %s: unreachable (no route to its network)",
     "Check the network and DOCKER_HOST."},
    {EHOSTUNREACH, ERR_ENGINE, "engine at %s: unreachable (its host does not answer)",
     "Check DOCKER_HOST, and that the host is up."},
    {ETIMEDOUT, ERR_TIMEOUT, "engine at %s: timed out while connecting",
     "Read the engine's log, or restart it. A firewall may also drop the packets."},
};
/* clang-format on */

int docker_unreached(const struct docker_endpoint *e, int errnum, struct err *err)
{
    _cleanup_free_ char *where = docker_endpoint_text(e);

    for (size_t i = 0; i < ARRAY_SIZE(symptoms); i++) {
        if (symptoms[i].errnum != errnum)
            continue;
        err_set(err, symptoms[i].code, symptoms[i].msg, where);
        if (err)
            err->errnum = errnum;
        return err_hint(err, "%s", symptoms[i].hint);
    }
    err_sys(err, errnum, "connect to the engine at %s", where);
    if (err)
        err->code = ERR_ENGINE;
    return -ERR_ENGINE;
}

static int connect_dial_unix(const struct docker_endpoint *e, const struct deadline *by, int *ret)
{
    for (;;) {
        _cleanup_err_ struct err err = ERR_INIT;

        if (unix_connect_path(e->path, SOCK_STREAM | SOCK_NONBLOCK, ret, &err) >= 0)
            return 0;
        if (err.errnum != EAGAIN)
            return err.errnum ? -err.errnum : -ENAMETOOLONG;
        if (deadline_passed(by))
            return -ETIMEDOUT;
        poll(NULL, 0, RETRY_MS);
    }
}

int docker_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                struct err *err)
{
    int r;

    if (deadline_passed(by))
        return docker_unreached(e, ETIMEDOUT, err);
    if (e->transport != DOCKER_UNIX)
        return docker_net_dial(e, by, ret, err);
    r = connect_dial_unix(e, by, ret);
    return r < 0 ? docker_unreached(e, -r, err) : 0;
}

int docker_connect(const struct docker *d, const struct deadline *by, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    r = docker_dial(&d->endpoint, by, &fd, err);
    if (r < 0)
        return r;
    if (d->tls)
        return docker_tls_wrap(d->tls, &d->endpoint, TAKE_FD(fd), by, ret, err);
    *ret = TAKE_FD(fd);
    return 0;
}
