#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/modes.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "proto/guest.h"

static const struct mode {
    const char *name;
    int (*run)(char **argv, struct err *err);
} modes[] = {
    {"exec", guest_exec},       {"dial", guest_dial},         {"listen", guest_listen},
    {"copy-in", guest_copy_in}, {"copy-out", guest_copy_out}, {"files", guest_files},
    {"reap", guest_reap},       {"init", guest_init},
};

static const struct mode *guest_find_mode(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(modes); i++)
        if (STREQ(modes[i].name, name))
            return &modes[i];
    return NULL;
}

void stdio_close(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    for (int fd = 0; fd <= 2; fd++)
        if (null < 0)
            close(fd);
        else if (null != fd)
            dup2(null, fd);
    if (null > 2)
        close(null);
}

/* Descriptors that we open must never become 0, 1 or 2. */
static bool guest_stdio_is_open(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    fd_close(fd);
    return fd > 2;
}

/*
 * The container has a writable folder of the host and no user namespace. A file that root makes
 * there would belong to root of the host. The system call filter keeps set-id bits from it; this is
 * the second guard.
 */
int guest_check_user(struct err *err)
{
    if (geteuid() != 0 || access(GUEST_NO_ROOT, F_OK) < 0)
        return 0;
    err_set(err, ERR_DENIED,
            "a sandbox with a writable mount cannot run commands as root on this engine, because "
            "their files would belong to root of this machine");
    return err_hint(err, "Use another user, a read-only mount, or the mount's option "
                         "'no_root_squash'.");
}

static void guest_complain(const struct err *err)
{
    static const char who[] = "ripcord-guest: ";

    (void)!write(2, who, sizeof(who) - 1);
    (void)!write(2, err->msg, strlen(err->msg));
    (void)!write(2, "\n", 1);
}

static int guest_run(char **argv, struct err *err)
{
    const struct mode *mode = guest_find_mode(argv[0] ? argv[1] : NULL);

    /*
     * Comes first: no process of the same user may inspect this process or its children. If that
     * user cannot read the program file, this holds from the start.
     */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "set up the guest's process attributes");
    if (!guest_stdio_is_open())
        return err_set(err, ERR_SYSTEM, "open '/dev/null' inside");
    if (!mode)
        return err_set(err, ERR_INVALID,
                       "ripcord starts this program inside sandboxes; do not start it by hand");
    umask(022);
    signal(SIGPIPE, SIG_IGN);
    return mode->run(argv + 2, err);
}

_noreturn_ void guest_main(char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (guest_run(argv, &err) >= 0)
        _exit(0);
    guest_complain(&err);
    _exit(err_code_exit(err.code));
}
