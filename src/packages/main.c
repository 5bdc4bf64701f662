#include "packages/main.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "lib/loop/loop.h"
#include "lib/loop/pool.h"
#include "lib/os/static-program.h"
#include "packages/confine.h"
#include "packages/packages.h"
#include "proto/packages.h"

enum {
    DISK_THREADS = 4,
    PAGE_THREADS = 16,
    DOWNLOAD_THREADS = 16,
    QUEUE_MAX = 4096,
    LOCK_POLL_MS = 20
};
#define LOCK_PATIENCE (5 * USEC_PER_SEC) /* longer than END_GRACE in control.c */

static int packages_read_config(struct packages *pkgs, struct err *err)
{
    _cleanup_free_ char *text = xmalloc(PACKAGES_CONFIG_MAX + 1);
    ssize_t n = fd_read_full(PACKAGES_FD_CONFIG, text, PACKAGES_CONFIG_MAX);

    fd_close(PACKAGES_FD_CONFIG);
    if (n < 0)
        return err_sys(err, (int)-n, "read the configuration");
    text[n] = '\0';
    return config_parse(text, (size_t)n, &pkgs->config, err);
}

/* Opens the folder before the change of user: the new user may not be able to reach its path. */
static int packages_open_folder(struct packages *pkgs, struct err *err)
{
    const struct packages_config *c = &pkgs->config;
    int r = dir_make_all(AT_FDCWD, c->folder, 0700, err);

    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, c->folder, &pkgs->dirfd, err);
    if (r < 0)
        return r;
    if (c->change_user && fchown(pkgs->dirfd, c->uid, c->gid) < 0)
        return err_sys(err, errno, "change the owner of '%s' to user %u", c->folder, c->uid);
    return 0;
}

/*
 * Only one process may use the folder. A package cache whose daemon was killed finishes its
 * requests for a moment; the next one must not clear the files that it still writes. The kernel
 * drops the lock when the process ends.
 */
static int packages_lock_folder(const struct packages *pkgs, struct err *err)
{
    struct deadline by = deadline_in(LOCK_PATIENCE);
    int fd = openat(pkgs->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno, "open '%s/lock'", pkgs->config.folder);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock '%s'", pkgs->config.folder);
        if (deadline_passed(&by))
            return err_set(err, ERR_CONFLICT, "'%s' is in use by another ripcord-packages",
                           pkgs->config.folder);
        poll(NULL, 0, LOCK_POLL_MS);
    }
    return 0; /* fd stays open: it holds the lock */
}

static int packages_make_page_folders(struct packages *pkgs, struct err *err)
{
    for (size_t i = 0; i < pkgs->config.n_upstreams; i++) {
        const struct upstream *u = &pkgs->config.upstreams[i];
        _cleanup_free_ char *path = xasprintf("pages/%s/%s", ecosystem_name(u->eco), u->name);
        _cleanup_free_ char *full = xasprintf("pages/npm-full/%s", u->name);

        int r = dir_make_all(pkgs->dirfd, path, 0700, err);

        if (r < 0)
            return r;
        if (u->eco != ECO_NPM)
            continue;
        r = dir_make_all(pkgs->dirfd, full, 0700, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The steps that need the rights which the process started with. */
static int packages_open(struct packages *pkgs, struct err *err)
{
    int r = fetch_init(err);

    if (r < 0)
        return r;
    r = packages_read_config(pkgs, err);
    if (r < 0)
        return r;
    r = packages_open_folder(pkgs, err);
    if (r < 0)
        return r;
    r = packages_lock_folder(pkgs, err);
    if (r < 0)
        return r;
    r = packages_become(&pkgs->config, err);
    if (r < 0)
        return r;
    return packages_confine(err);
}

static int packages_bring_up(struct packages *pkgs, struct err *err)
{
    int r = packages_open(pkgs, err);

    if (r < 0)
        return r;
    r = blobs_open(&pkgs->blobs, pkgs->dirfd, pkgs->config.budget, err);
    if (r < 0)
        return r;
    r = packages_make_page_folders(pkgs, err);
    if (r < 0)
        return r;
    r = loop_new(&pkgs->loop, err);
    if (r < 0)
        return r;
    r = package_downloads_init(pkgs, err);
    if (r < 0)
        return r;
    r = control_new(pkgs, PACKAGES_FD_CONTROL, err);
    if (r < 0)
        return r;
    pkgs->disk = pool_new(pkgs->loop, "disk", DISK_THREADS, QUEUE_MAX);
    pkgs->pages = pool_new(pkgs->loop, "pages", PAGE_THREADS, QUEUE_MAX);
    pkgs->downloads = pool_new(pkgs->loop, "downloads", DOWNLOAD_THREADS, QUEUE_MAX);
    return 0;
}

static void packages_report_failure(const struct err *err)
{
    struct sup_writer w;

    log_error("the package cache cannot start: %s", err->msg);
    sup_begin(&w, (enum sup_msg_type)PACKAGES_FAILED, 0);
    sup_put_err(&w, err);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(PACKAGES_FD_CONTROL, buf_data(&w.buf), w.buf.len, NULL, 0, 0);
    sup_writer_done(&w);
}

/* Leaves with _exit() while downloads may still run: their files in tmp/ are cleared by the next
 * start. */
int packages_main(void)
{
    static struct packages pkgs = {.dirfd = -1, .wake_fd = -1}; /* workers use it until the exit */
    _cleanup_err_ struct err err = ERR_INIT;

    static_program_init();
    json_need_memory();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "ripcord-package", 0, 0, 0);
    fcntl(PACKAGES_FD_CONTROL, F_SETFD, FD_CLOEXEC);
    if (packages_bring_up(&pkgs, &err) < 0) {
        packages_report_failure(&err);
        _exit(1);
    }
    control_ready(pkgs.control);
    loop_run(pkgs.loop);
    _exit(0);
}
