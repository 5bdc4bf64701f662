#include "client/running.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { RUNNING_COMMAND_MAX = 64 << 10 };

void running_done(struct running *r)
{
    r->pidfd = fd_close(r->pidfd);
}

int running_find(int fd, struct running *ret, struct err *err)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    int pidfd;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return err_sys(err, errno, "read the peer of the daemon's socket");
    if (peer.pid <= 0) {
        err_set(err, ERR_UNSUPPORTED, "the daemon runs in another pid namespace");
        return err_hint(err, "Run this command where the daemon runs.");
    }
    pidfd = pidfd_open(peer.pid, 0);
    if (pidfd < 0)
        return err_sys(err, errno, "open process %d", (int)peer.pid);
    *ret = (struct running){.pid = peer.pid, .pidfd = pidfd};
    return 0;
}

/* `text` is the command line, with a NUL after each word. */
static bool client_running_check_words(const char *text, const char *end)
{
    for (const char *w = text + strlen(text) + 1; w < end; w += strlen(w) + 1) {
        if (STREQ(w, "--foreground"))
            continue;
        if (!STREQ(w, "--root") && !STREQ(w, "--ready-fd"))
            return true;
        w += strlen(w) + 1;
        if (w >= end)
            break;
    }
    return false;
}

bool running_has_options(const struct running *r)
{
    _cleanup_free_ char *path = xasprintf("/proc/%d/cmdline", (int)r->pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *text = xmalloc(RUNNING_COMMAND_MAX + 1);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, RUNNING_COMMAND_MAX);

    if (n <= 0)
        return true; /* unknown: the careful answer */
    text[n] = '\0';
    return client_running_check_words(text, text + n);
}

int running_end(const struct running *r, const struct deadline *by, struct err *err)
{
    struct pollfd p = {.fd = r->pidfd, .events = POLLIN};
    int n;

    if (pidfd_send_signal(r->pidfd, SIGTERM, NULL, 0) < 0 && errno != ESRCH)
        return err_sys(err, errno, "send SIGTERM to the daemon (pid %d)", (int)r->pid);
    do
        n = poll(&p, 1, deadline_ms(by));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return err_sys(err, errno, "wait for the end of the daemon");
    return n ? 0 : err_set(err, ERR_TIMEOUT, "the daemon (pid %d) does not end", (int)r->pid);
}
