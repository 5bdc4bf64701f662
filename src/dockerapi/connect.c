/*
 * connect(2) is never left to block: on a unix socket whose owner hangs with a full backlog it
 * would wait without end, so it is tried again until the deadline.
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
    {ENOENT, ERR_ENGINE, "there is no engine at %s: the socket does not exist",
     "Start the engine ('systemctl start docker', or 'podman system service'), or set DOCKER_HOST to where it listens."},
    {ENOTDIR, ERR_ENGINE, "there is no engine at %s: its folder is not a folder",
     "Set DOCKER_HOST to where the engine listens."},
    {ECONNREFUSED, ERR_ENGINE, "the engine at %s is not running: nobody listens there",
     "Start it ('systemctl start docker', or 'podman system service'); its log says why it ended."},
    {EACCES, ERR_DENIED, "no permission to use the engine at %s",
     "Add the user to the socket's group ('usermod -aG docker USER', then log in again), or use a rootless engine."},
    {EPERM, ERR_DENIED, "no permission to use the engine at %s",
     "Add the user to the socket's group ('usermod -aG docker USER', then log in again), or use a rootless engine."},
    {ENETUNREACH, ERR_ENGINE, "the engine at %s cannot be reached: no route to its network",
     "Check the network and DOCKER_HOST."},
    {EHOSTUNREACH, ERR_ENGINE, "the engine at %s cannot be reached: its host does not answer",
     "Check that the host is up, and DOCKER_HOST."},
    {ETIMEDOUT, ERR_TIMEOUT, "the engine at %s takes no connection in time",
     "It hangs, or its host drops packets; see its log, or restart it."},
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

static int connect_try_unix(const char *path, int *ret)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (unix_connect_path(path, SOCK_STREAM | SOCK_NONBLOCK, ret, &err) < 0)
        return err.errnum ? -err.errnum : -ENAMETOOLONG;
    return 0;
}

static int connect_dial_unix(const struct docker_endpoint *e, const struct deadline *by, int *ret)
{
    for (;;) {
        int r = connect_try_unix(e->path, ret);

        if (r != -EAGAIN)
            return r;
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
