/*
 * /proc and /sys. /proc belongs to the sandbox's own pid namespace; entries that could change the
 * machine are read-only, and entries that reveal too much about the machine are hidden. /sys is not
 * the kernel's sysfs but a read-only folder with a few files that describe the sandbox.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/os/mount.h"
#include "supervisor/shim/mount-point.h"
#include "supervisor/shim/proc-view.h"
#include "supervisor/shim/setup.h"
#include "supervisor/shim/start-cause.h"

static const char *const locked[] = {"sys", "bus", "fs", "irq", "sysrq-trigger"};

/* Files and folders; the kernel's configuration decides which of them exist. They reveal keys,
 * kernel addresses, boot parameters, and the activity of others: by interrupt counters, and by the
 * list of locks, which shows the machine's open-file-description locks to every reader. */
static const char *const hidden[] = {
    "kcore",    "keys",      "timer_list", "sched_debug", "latency_stats", "scsi",
    "acpi",     "asound",    "interrupts", "kallsyms",    "modules",       "key-users",
    "softirqs", "schedstat", "diskstats",  "cmdline",     "timer_stats",   "locks",
};

static int setup_proc_protect(int proc, const char *name, struct err *err)
{
    _cleanup_close_ int fd = -1;

    if (faccessat(proc, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (mount_clone(proc, name, 0, &fd, err) < 0 ||
        mount_set(fd, MOUNT_RDONLY | MOUNT_SAFE | MOUNT_NOEXEC, -1, err) < 0 ||
        mount_attach(fd, proc, name, err) < 0)
        return err_wrap(err, "make '/proc/%s' read-only", name);
    return 0;
}

static int setup_proc_clone_file(int files, const char *name, bool read_only, int *ret,
                                 struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    r = mount_clone(files, name, 0, &fd, err);
    if (r < 0)
        return r;
    if (read_only) {
        r = mount_set(fd, MOUNT_RDONLY, -1, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_FD(fd);
    return 0;
}

int setup_bind_file(int files, const char *name, bool read_only, int root_fd, const char *path,
                    struct err *err)
{
    _cleanup_close_ int fd = -1;

    if (setup_proc_clone_file(files, name, read_only, &fd, err) < 0 ||
        mount_point_mount(root_fd, path, MOUNT_POINT_FILE, fd, err) < 0)
        return err_wrap(err, "bind '/%s'", path);
    return 0;
}

/* Covers the entry with an empty folder or file of our own, never with one from the image. */
static int setup_proc_hide(int proc, int files, const char *name, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (fstatat(proc, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
        return 0;
    if (setup_proc_clone_file(files, S_ISDIR(st.st_mode) ? "folder" : "file", true, &fd, err) < 0 ||
        mount_attach(fd, proc, name, err) < 0)
        return err_wrap(err, "hide '/proc/%s'", name);
    return 0;
}

/*
 * The tmpfs is attached at /sys for now, because before Linux 6.15 a detached tree cannot be
 * cloned. The final /sys covers it later, so processes inside reach only the parts that are bound
 * elsewhere. Those bind mounts are read-only. The tmpfs itself must stay writable: meminfo is
 * written again while the sandbox runs.
 */
static int setup_proc_make_files(int root_fd, int *ret, struct err *err)
{
    static const char *const options[] = {"size=640k", "nr_inodes=16k", "mode=0555", NULL};
    _cleanup_close_ int fd = -1;
    int r;

    r = mount_new("tmpfs", options, MOUNT_SAFE | MOUNT_NOEXEC, &fd, err);
    if (r < 0)
        return r;
    r = mount_point_mkdir(fd, "folder", 0555, err);
    if (r < 0)
        return r;
    r = mount_point_write(fd, "file", "", err);
    if (r < 0)
        return r;
    r = mount_point_mount(root_fd, "sys", MOUNT_POINT_FOLDER, fd, err);
    if (r < 0)
        return r;
    *ret = TAKE_FD(fd);
    return 0;
}

/*
 * A second guard behind seccomp: processes inside cannot make a user namespace, and so cannot gain
 * privileges. We write through the descriptor of our own procfs before it is attached, so a
 * prepared /proc in the image has no effect.
 */
static int setup_proc_forbid_namespaces(int root_fd, int proc, struct err *err)
{
    static const char *const by_name = "proc/sys/user/max_user_namespaces";
    bool own = GUARD("own procfs");

    return GUARD("no namespaces") ? file_write(own ? proc : root_fd,
                                               own ? by_name + strlen("proc/") : by_name, "0", err)
                                  : 0;
}

int setup_proc(const struct plan *plan, int proc, int root_fd, int *ret_files, struct err *err)
{
    size_t n_locked = GUARD("locked proc") ? ARRAY_SIZE(locked) : 0;
    size_t n_hidden = GUARD("hidden proc") ? ARRAY_SIZE(hidden) : 0;
    _cleanup_close_ int own = -1, files = -1;
    int r = 0;

    if (proc < 0)
        r = mount_new("proc", NULL, MOUNT_SAFE | MOUNT_NOEXEC, &own, err);
    if (r < 0) {
        start_cause(plan, START_STEP_PROC, NULL, err);
        return err_wrap(err, "set up '/proc'");
    }
    proc = proc < 0 ? own : proc;
    r = setup_proc_forbid_namespaces(root_fd, proc, err);
    if (r < 0)
        return r;
    r = mount_point_mount(root_fd, "proc", MOUNT_POINT_FOLDER, proc, err);
    if (r < 0)
        return r;
    r = setup_proc_make_files(root_fd, &files, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n_locked; i++) {
        r = setup_proc_protect(proc, locked[i], err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < n_hidden; i++) {
        r = setup_proc_hide(proc, files, hidden[i], err);
        if (r < 0)
            return r;
    }
    *ret_files = TAKE_FD(files);
    return 0;
}

/* ---- /sys ---- */

static int setup_proc_write_cpus(const struct plan *plan, int sys, struct err *err)
{
    static const char *const lists[] = {"online", "possible", "present"};
    _cleanup_buf_ struct buf list = BUF_INIT(64);
    char path[64];
    cpu_set_t have;
    unsigned cpus;
    int r;

    if (sched_getaffinity(0, sizeof(have), &have) < 0)
        return err_sys(err, errno, "count the CPUs");
    cpus = proc_view_cpu_count(plan->cpu_milli, &have);
    if (proc_view_cpu_list(&list, cpus) < 0)
        return err_set(err, ERR_LIMIT, "list of CPUs is too long");
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        snprintf(path, sizeof(path), "devices/system/cpu/%s", lists[i]);
        r = mount_point_write(sys, path, buf_data(&list), err);
        if (r < 0)
            return r;
    }
    for (unsigned i = 0; i < cpus; i++) {
        snprintf(path, sizeof(path), "devices/system/cpu/cpu%u", i);
        r = mount_point_mkdir(sys, path, 0555, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int setup_proc_fill_sys(const struct plan *plan, int sys, struct err *err)
{
    static const char *const folders[] = {"devices", "devices/system", "devices/system/cpu",
                                          "fs",      "fs/cgroup",      "kernel"};

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        int r = mount_point_mkdir(sys, folders[i], 0555, err);

        if (r < 0)
            return r;
    }
    return setup_proc_write_cpus(plan, sys, err);
}

/* /sys is a folder of the small files' tmpfs and not a file system of its own. Each file system
 * makes a start slower, and their number on the machine makes the removal of cgroups slower. */
int setup_sys(const struct plan *plan, int files, int root_fd, struct err *err)
{
    _cleanup_close_ int sys = -1;

    if (mount_point_mkdir(files, "sys", 0555, err) < 0 ||
        mount_clone(files, "sys", 0, &sys, err) < 0 || setup_proc_fill_sys(plan, sys, err) < 0 ||
        mount_set(sys, MOUNT_RDONLY, -1, err) < 0 ||
        mount_point_mount(root_fd, "sys", MOUNT_POINT_FOLDER, sys, err) < 0)
        return err_wrap(err, "set up '/sys'");
    return 0;
}
