/*
 * A probe runs in a child, which writes the text of its error into a pipe, or "\n" for success. The
 * error is the kernel's; the doctor adds what to do.
 */
#include "daemon/engine/native/kernel-probe.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "daemon/engine/native/ids.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/idmap.h"
#include "lib/os/mount.h"
#include "lib/os/overlay.h"
#include "lib/os/rmtree.h"

enum { REPORT_MAX = 512, NOBODY = 65534 };
#define KERNEL_PROBE_TIMEOUT (10 * USEC_PER_SEC)

typedef int (*kernel_probe_fn)(void *arg, struct err *err);

static _noreturn_ void kernel_probe_report_and_exit(int fd, kernel_probe_fn fn, void *arg)
{
    struct err err = ERR_INIT;

    if (fn(arg, &err) < 0)
        fd_write_all(fd, err.msg, strnlen(err.msg, REPORT_MAX));
    else
        fd_write_all(fd, "\n", 1);
    _exit(0);
}

/* Reads the child's report: "\n" is success, nothing means that the child was killed. */
static int kernel_probe_read_report(pid_t pid, int fd, struct err *err)
{
    struct deadline by = deadline_in(KERNEL_PROBE_TIMEOUT);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char text[REPORT_MAX + 1];
    ssize_t n = -1;

    if (poll(&p, 1, deadline_ms(&by)) > 0)
        n = fd_read_full(fd, text, REPORT_MAX);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (n < 0)
        return err_set(err, ERR_TIMEOUT, "the probe did not end in time");
    text[n] = '\0';
    if (STREQ(text, "\n"))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "%s", n ? text : "the probe was killed");
}

/* ---- user namespaces for ordinary users ---- */

static int kernel_probe_use_user_namespace(void *arg _unused_, struct err *err)
{
    /* As root, become an ordinary user first: the probe is about the rights of ordinary users. */
    if (setgroups(0, NULL) == 0 &&
        (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return err_sys(err, errno, "become an ordinary user");
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return err_sys(err, errno, "make a user namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, errno, "mount in a new user namespace");
    return 0;
}

int kernel_probe_user_namespace(struct err *err)
{
    int p[2], r;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    pid = fork();
    if (pid == 0)
        kernel_probe_report_and_exit(p[1], kernel_probe_use_user_namespace, NULL);
    fd_close(p[1]);
    r = pid < 0 ? err_sys(err, errno, "fork") : kernel_probe_read_report(pid, p[0], err);
    fd_close(p[0]);
    return r;
}

/* ---- namespaces of a sandbox ---- */

struct probe_child {
    kernel_probe_fn fn;
    void *arg;
    int go; /* readable when the maps are written */
};

static int kernel_probe_run_inside(void *arg, struct err *err)
{
    const struct probe_child *in = arg;
    char c;

    if (read(in->go, &c, 1) != 1)
        return err_set(err, ERR_SYSTEM, "no id map");
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return err_sys(err, errno, "become root of the user namespace");
    return in->fn(in->arg, err);
}

static int kernel_probe_write_maps(pid_t pid, bool ranges, struct err *err)
{
    const struct ns_map range = {0, IDS_FIRST, IDS_COUNT, NULL};
    const struct ns_map uid = {0, getuid(), 1, NULL}, gid = {0, getgid(), 1, NULL};

    return ranges ? ns_write_maps(pid, &range, &range, false, err)
                  : ns_write_maps(pid, &uid, &gid, true, err);
}

static int kernel_probe_in_namespaces(uint64_t flags, bool ranges, kernel_probe_fn fn, void *arg,
                                      struct err *err)
{
    _cleanup_close_ int report = -1, report_in = -1, go = -1, go_in = -1;
    struct probe_child in = {.fn = fn, .arg = arg};
    int p[2], r;
    pid_t pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    report = p[0];
    report_in = p[1];
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    go = p[0];
    go_in = p[1];
    pid = ns_clone(flags | CLONE_NEWUSER, -1, NULL);
    if (pid < 0)
        return err_sys(err, -pid, "make namespaces");
    if (pid == 0) {
        close(go_in); /* else the child would never see the end of the pipe */
        in.go = go;
        kernel_probe_report_and_exit(report_in, kernel_probe_run_inside, &in);
    }
    report_in = fd_close(report_in);
    r = kernel_probe_write_maps(pid, ranges, err);
    if (r < 0) {
        go_in = fd_close(go_in); /* the child ends */
        kernel_probe_read_report(pid, report, NULL);
        return r;
    }
    fd_write_all(go_in, "g", 1);
    go_in = fd_close(go_in);
    return kernel_probe_read_report(pid, report, err);
}

static int kernel_probe_do_nothing(void *arg _unused_)
{
    return 0;
}

int kernel_probe_subids(const struct submap *ids, struct err *err)
{
    return submap_run(ids, kernel_probe_do_nothing, NULL, err);
}

static int kernel_probe_mount_proc(void *arg _unused_, struct err *err)
{
    _cleanup_close_ int fd = -1;

    return mount_new("proc", NULL, MOUNT_SAFE | MOUNT_NOEXEC, &fd, err);
}

int kernel_probe_proc(bool ranges, struct err *err)
{
    return kernel_probe_in_namespaces(CLONE_NEWNS | CLONE_NEWPID, ranges, kernel_probe_mount_proc,
                                      NULL, err);
}

/* ---- overlay ---- */

struct overlay_probe {
    const char *dir;
    int layers; /* id-mapped clone of dir, or -1 */
};

/* Mapped ids may not have search permission on the path to dir. As in a sandbox, the layers are
 * attached to a tmpfs of the namespace. */
static int kernel_probe_enter_mapped(int layers, struct err *err)
{
    _cleanup_close_ int scaffold = -1;
    int r;

    r = mount_new("tmpfs", NULL, MOUNT_SAFE, &scaffold, err);
    if (r < 0)
        return r;
    r = mount_attach(scaffold, AT_FDCWD, "/", err);
    if (r < 0)
        return r;
    if (mkdirat(scaffold, "layers", 0755) < 0)
        return err_sys(err, errno, "make a folder in the scaffold");
    r = mount_attach(layers, scaffold, "layers", err);
    if (r < 0)
        return r;
    if (fchdir(scaffold) < 0 || chdir("layers") < 0)
        return err_sys(err, errno, "enter the scaffold");
    return 0;
}

static int kernel_probe_use_overlay(void *arg, struct err *err)
{
    const struct overlay_probe *t = arg;
    const struct overlay o = {.lower = "lower", .upper = "upper", .work = "work"};
    _cleanup_close_ int fd = -1, file = -1;
    int r;

    r = mount_make_private(err);
    if (r < 0)
        return r;
    if (t->layers < 0 && chdir(t->dir) < 0)
        return err_sys(err, errno, "enter '%s'", t->dir);
    if (t->layers >= 0)
        r = kernel_probe_enter_mapped(t->layers, err);
    if (r < 0)
        return r;
    r = overlay_mount(&o, &fd, err);
    if (r < 0)
        return r;
    file = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return file < 0 ? err_sys(err, errno, "write a file in the overlay") : 0;
}

static int kernel_probe_map_layers(struct overlay_probe *t, struct err *err)
{
    const struct ns_map range = {0, IDS_FIRST, IDS_COUNT, NULL};
    _cleanup_close_ int userns = -1;
    int r;

    r = idmap_userns(&range, &range, &userns, err);
    if (r < 0)
        return r;
    r = mount_clone(AT_FDCWD, t->dir, 0, &t->layers, err);
    if (r < 0)
        return r;
    return mount_set(t->layers, MOUNT_SAFE, userns, err);
}

static int kernel_probe_try_overlay(struct overlay_probe *t, bool ranges, struct err *err)
{
    _cleanup_close_ int at = -1;
    int r = dir_open(AT_FDCWD, t->dir, &at, err);

    if (r < 0)
        return r;
    if (mkdirat(at, "lower", 0755) < 0 || mkdirat(at, "upper", 0755) < 0 ||
        mkdirat(at, "work", 0755) < 0)
        return err_sys(err, errno, "make folders in '%s'", t->dir);
    if (ranges)
        r = kernel_probe_map_layers(t, err);
    if (r < 0)
        return r;
    return kernel_probe_in_namespaces(CLONE_NEWNS, ranges, kernel_probe_use_overlay, t, err);
}

int kernel_probe_overlay(const char *dir, bool ranges, struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("%s/doctor-XXXXXX", dir);
    struct overlay_probe t = {.dir = tmp, .layers = -1};
    _cleanup_close_ int parent = -1;
    int r;

    r = dir_open(AT_FDCWD, dir, &parent, err);
    if (r < 0)
        return r;
    if (!mkdtemp(tmp))
        return err_sys(err, errno, "make a folder in '%s'", dir);
    r = kernel_probe_try_overlay(&t, ranges, err);
    fd_close(t.layers);
    rmtree(parent, strrchr(tmp, '/') + 1, NULL);
    return r;
}
