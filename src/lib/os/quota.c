/*
 * quotactl_fd() (linux 5.14) names the file system by a descriptor, so no device has to be found.
 * ext4 and XFS answer the same commands: the kernel translates between their formats.
 */
#include "lib/os/quota.h"

#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

/* Our part of the project ids: "rc" and 16 bits. /etc/projid has small numbers by habit. */
#define PROJECT_FIRST 0x72630000U

enum { PROJECTS = 1 << 16, TRIES = 64, KIB_SHIFT = 10 };

/* A descriptor for ioctl() and quotactl_fd(), also from one with O_PATH. */
static int quota_open(int dirfd, struct err *err)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_sys(err, errno, "open a folder for its quota") : fd;
}

static long quota_ctl(int fd, int command, uint32_t project, void *arg)
{
    return syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), project, arg);
}

/* A project that the file system has never seen has nothing. */
static int quota_get(int fd, uint32_t project, struct if_dqblk *ret)
{
    *ret = (struct if_dqblk){0};
    if (quota_ctl(fd, Q_GETQUOTA, project, ret) < 0 && errno != ENOENT && errno != ESRCH)
        return -errno;
    return 0;
}

bool quota_possible(int dirfd, const char **why)
{
    _cleanup_close_ int fd = quota_open(dirfd, NULL);
    struct fs_quota_statv state = {.qs_version = FS_QSTATV_VERSION1};
    const char *missing = NULL;
    struct if_dqblk any;

    if (fd < 0 || quota_ctl(fd, Q_XGETQSTATV, 0, &state) < 0 ||
        !(state.qs_flags & FS_QUOTA_PDQ_ENFD))
        missing = "the file system is not mounted with project quotas";
    else if (quota_get(fd, PROJECT_FIRST, &any) < 0)
        missing = "quotas can be set only by root of the first user namespace";
    if (why)
        *why = missing;
    return !missing;
}

/* ---- the project of a folder ---- */

static uint32_t quota_project(int fd)
{
    struct fsxattr x;

    return ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0 ? 0 : x.fsx_projid;
}

/* Project 0 counts for nobody. */
static int quota_set_project(int fd, uint32_t project, bool inherit, struct err *err)
{
    struct fsxattr x;

    if (ioctl(fd, FS_IOC_FSGETXATTR, &x) < 0)
        return err_sys(err, errno, "read a folder's project id");
    x.fsx_projid = project;
    x.fsx_xflags &= ~(uint32_t)FS_XFLAG_PROJINHERIT;
    x.fsx_xflags |= inherit ? FS_XFLAG_PROJINHERIT : 0;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &x) < 0)
        return err_sys(err, errno, "set a folder's project id");
    return 0;
}

static bool quota_is_ours(uint32_t project)
{
    return project >= PROJECT_FIRST && project - PROJECT_FIRST < PROJECTS;
}

/* A new number at each call. It begins anywhere, so that two daemons rarely try the same. */
static uint32_t quota_next_project(void)
{
    static atomic_uint last;
    unsigned start;

    if (!atomic_load(&last) && getrandom(&start, sizeof(start), GRND_NONBLOCK) == sizeof(start))
        atomic_store(&last, start | 1);
    return PROJECT_FIRST + atomic_fetch_add(&last, 1) % PROJECTS;
}

int quota_assign(int dirfd, struct err *err)
{
    _cleanup_close_ int fd = quota_open(dirfd, err);
    struct if_dqblk q;

    if (fd < 0)
        return -ERR_SYSTEM;
    if (quota_is_ours(quota_project(fd)))
        return 0;
    for (int i = 0; i < TRIES; i++) {
        uint32_t project = quota_next_project();
        int r = quota_get(fd, project, &q);

        if (r < 0)
            return err_sys(err, -r, "read the quota of project %u", project);
        if (q.dqb_curinodes)
            continue;
        r = quota_set_project(fd, project, true, err);
        if (r < 0)
            return r;
        r = quota_get(fd, project, &q);
        if (r == 0 && q.dqb_curinodes == 1) /* else another daemon has just taken it too */
            return quota_limit(dirfd, &(const struct disk_usage){0}, err);
    }
    quota_set_project(fd, 0, false, NULL);
    return err_set(err, ERR_LIMIT, "no free project id for a disk quota in %d tries", TRIES);
}

int quota_exempt(int dirfd, struct err *err)
{
    _cleanup_close_ int fd = quota_open(dirfd, err);

    if (fd < 0)
        return -ERR_SYSTEM;
    return quota_is_ours(quota_project(fd)) ? quota_set_project(fd, 0, false, err) : 0;
}

int quota_join(int dirfd, int parent, struct err *err)
{
    _cleanup_close_ int fd = quota_open(dirfd, err), up = quota_open(parent, err);
    uint32_t project;

    if (fd < 0 || up < 0)
        return -ERR_SYSTEM;
    project = quota_project(up);
    return quota_is_ours(project) ? quota_set_project(fd, project, false, err) : 0;
}

bool quota_assigned(int dirfd)
{
    _cleanup_close_ int fd = quota_open(dirfd, NULL);

    return fd >= 0 && quota_is_ours(quota_project(fd));
}

/* ---- its figures ---- */

int quota_limit(int dirfd, const struct disk_usage *most, struct err *err)
{
    _cleanup_close_ int fd = quota_open(dirfd, err);
    struct if_dqblk q = {.dqb_valid = QIF_LIMITS};

    if (fd < 0)
        return -ERR_SYSTEM;
    q.dqb_bhardlimit = most->bytes >> KIB_SHIFT;
    q.dqb_ihardlimit = most->files;
    if (quota_ctl(fd, Q_SETQUOTA, quota_project(fd), &q) < 0)
        return err_sys(err, errno, "set a disk quota");
    return 0;
}

int quota_usage(int dirfd, struct disk_usage *ret, struct err *err)
{
    _cleanup_close_ int fd = quota_open(dirfd, err);
    struct if_dqblk q;
    int r;

    if (fd < 0)
        return -ERR_SYSTEM;
    r = quota_get(fd, quota_project(fd), &q);
    if (r < 0)
        return err_sys(err, -r, "read a disk quota");
    *ret = (struct disk_usage){q.dqb_curspace, q.dqb_curinodes};
    return 0;
}
