#include "lib/os/confined-probe.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/landlock.h"
#include "lib/os/seccomp-confined.h"

/* The broker's sockets (supervisor/shim/broker.c). */
static int confined_probe_loopback(struct err *err)
{
    static const char lo[] = "lo";
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, lo, sizeof(lo)) == 0)
        return 0;
    err_sys(err, errno, "bind a socket to the loopback interface");
    return err_hint(err, "Bring the interface 'lo' up.");
}

/* Landlock first, as it needs the version: its error says what to do. */
static int confined_probe_all(struct err *err)
{
    _cleanup_close_ int rules = -1, listener = -1;
    int r = landlock_rules_open(&rules, err);

    if (r < 0)
        return r;
    r = confined_probe_loopback(err);
    if (r < 0)
        return r;
    r = landlock_rules_enter(rules, err);
    if (r < 0)
        return r;
    return seccomp_confined_install(true, &listener, err);
}

int confined_probe(struct err *err)
{
    if (confined_probe_all(err) >= 0)
        return 0;
    if (err)
        err->code = ERR_UNSUPPORTED;
    return -ERR_UNSUPPORTED;
}
