/*
 * The files that show a sandbox its own memory, CPUs and name servers instead of the machine's or
 * the image's. They are in a tmpfs of the sandbox, so its mount table names no folder of the host.
 */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "supervisor/shim/mount-point.h"
#include "supervisor/shim/proc-view.h"
#include "supervisor/shim/setup.h"

/* read_only: false only for /etc/resolv.conf, which the sandbox's root may change as on any
 * machine. */
static int setup_proc_view_put_file(int files, const char *name, const char *text, bool read_only,
                                    int root_fd, const char *path, struct err *err)
{
    int r = mount_point_write(files, name, text, err);

    return r < 0 ? r : setup_bind_file(files, name, read_only, root_fd, path, err);
}

static int setup_proc_view_put_meminfo(uint64_t memory_shown, int files, int root_fd, int *ret,
                                       struct err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(PROC_VIEW_FILE_MAX);
    int fd, r;

    if (!memory_shown)
        return 0;
    if (proc_view_meminfo(&text, memory_shown, 0, 0) < 0)
        return err_set(err, ERR_LIMIT, "text of '/proc/meminfo' is too long");
    r = setup_proc_view_put_file(files, "meminfo", buf_data(&text), true, root_fd, "proc/meminfo",
                                 err);
    if (r < 0)
        return r;
    fd = openat(files, "meminfo", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open the file behind '/proc/meminfo'");
    *ret = fd;
    return 0;
}

/* Reads page by page: the kernel computes each processor's entry when it is read, and on a large
 * machine we need only the first few. */
static int setup_proc_view_read_cpuinfo(struct buf *b, unsigned cpus)
{
    _cleanup_close_ int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    unsigned seen = 0;

    while (fd >= 0 && seen < cpus) {
        char page[4096];
        ssize_t n = read(fd, page, sizeof(page));

        if (n <= 0)
            break;
        if (buf_append(b, page, (size_t)n) < 0)
            return -1;
        seen = 0;
        for (const char *p = buf_data(b); (p = strstr(p, "\n\n")); p += 2)
            seen++;
    }
    return 0;
}

static int setup_proc_view_put_cpuinfo(const struct plan *plan, int files, int root_fd,
                                       struct err *err)
{
    _cleanup_buf_ struct buf host = BUF_INIT(PROC_VIEW_FILE_MAX),
                             text = BUF_INIT(PROC_VIEW_FILE_MAX);
    cpu_set_t have;
    unsigned cpus;

    if (sched_getaffinity(0, sizeof(have), &have) < 0)
        return err_sys(err, errno, "count the CPUs");
    cpus = proc_view_cpu_count(plan->cpu_milli, &have);
    if (cpus >= (unsigned)sysconf(_SC_NPROCESSORS_ONLN))
        return 0;
    if (setup_proc_view_read_cpuinfo(&host, cpus) < 0 ||
        proc_view_cpuinfo(&text, buf_data(&host), cpus) < 0)
        return err_set(err, ERR_LIMIT, "text of '/proc/cpuinfo' is too long");
    return setup_proc_view_put_file(files, "cpuinfo", buf_data(&text), true, root_fd,
                                    "proc/cpuinfo", err);
}

int setup_proc_view(const struct plan *plan, uint64_t memory_shown, int files, int root_fd,
                    int *ret_meminfo, struct err *err)
{
    int r;

    r = setup_proc_view_put_cpuinfo(plan, files, root_fd, err);
    if (r < 0)
        return r;
    if (plan->resolv_conf) {
        r = setup_proc_view_put_file(files, "resolv.conf", plan->resolv_conf, false, root_fd,
                                     "etc/resolv.conf", err);
        if (r < 0)
            return r;
    }
    return setup_proc_view_put_meminfo(memory_shown, files, root_fd, ret_meminfo, err);
}
