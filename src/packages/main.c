#include "packages/main.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
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
#define LOCK_PATIENCE (5 * USEC_PER_SEC) /* over the grace of one that ends (control.c) */

static int packages_read_config(struct packages *reg, struct err *err)
{
    _cleanup_free_ char *text = xmalloc(PACKAGES_CONFIG_MAX + 1);
    ssize_t n = fd_read_full(PACKAGES_FD_CONFIG, text, PACKAGES_CONFIG_MAX);

    fd_close(PACKAGES_FD_CONFIG);
    if (n < 0)
        return err_sys(err, (int)-n, "read the configuration");
    text[n] = '\0';
    return config_parse(text, (size_t)n, &reg->config, err);
}

/* Opened as who we were, owned by who we become: the way to it may be closed to that one. */
static int packages_open_folder(struct packages *reg, struct err *err)
{
    const struct packages_config *c = &reg->config;
    int r = dir_make_all(AT_FDCWD, c->folder, 0700, err);

    if (r >= 0)
        r = dir_open(AT_FDCWD, c->folder, &reg->dirfd, err);
    if (r >= 0 && c->change_user && fchown(reg->dirfd, c->uid, c->gid) < 0)
        return err_sys(err, errno, "give '%s' to user %u", c->folder, c->uid);
    return r;
}

/*
 * One process at a time: a registry whose daemon was killed finishes what runs for a moment, and
 * the next daemon's must not clear away under it what it is writing. The lock goes with the
 * process.
 */
static int packages_lock_folder(const struct packages *reg, struct err *err)
{
    struct deadline by = deadline_in(LOCK_PATIENCE);
    int fd = openat(reg->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno, "open '%s/lock'", reg->config.folder);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock '%s'", reg->config.folder);
        if (deadline_passed(&by))
            return err_set(err, ERR_CONFLICT, "'%s' is in use by another ripcord-packages",
                           reg->config.folder);
        poll(NULL, 0, LOCK_POLL_MS);
    }
    return 0; /* never closed */
}

static int packages_make_page_folders(struct packages *reg, struct err *err)
{
    int r = 0;

    for (size_t i = 0; i < reg->config.n_upstreams && r >= 0; i++) {
        const struct upstream *u = &reg->config.upstreams[i];
        _cleanup_free_ char *path = xasprintf("pages/%s/%s", ecosystem_name(u->eco), u->name);
        _cleanup_free_ char *full = xasprintf("pages/npm-full/%s", u->name);

        r = dir_make_all(reg->dirfd, path, 0700, err);
        if (r >= 0 && u->eco == ECO_NPM)
            r = dir_make_all(reg->dirfd, full, 0700, err);
    }
    return r;
}

/* What libraries load on first use they must load now: afterwards the filter may not let them. */
static void packages_warm_up(void)
{
    struct addrinfo *found = NULL;

    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
}

static int packages_bring_up(struct packages *reg, struct err *err)
{
    int r = fetch_init(err);

    if (r >= 0)
        r = packages_read_config(reg, err);
    if (r >= 0)
        r = packages_open_folder(reg, err);
    if (r >= 0)
        r = packages_lock_folder(reg, err);
    packages_warm_up();
    if (r >= 0)
        r = packages_become(&reg->config, err);
    if (r >= 0)
        r = packages_confine(err);
    if (r >= 0)
        r = blobs_open(&reg->blobs, reg->dirfd, reg->config.budget, err);
    if (r >= 0)
        r = packages_make_page_folders(reg, err);
    if (r >= 0)
        r = loop_new(&reg->loop, err);
    if (r >= 0)
        r = package_downloads_init(reg, err);
    if (r >= 0)
        r = control_new(reg, PACKAGES_FD_CONTROL, err);
    if (r < 0)
        return r;
    reg->disk = pool_new(reg->loop, "disk", DISK_THREADS, QUEUE_MAX);
    reg->pages = pool_new(reg->loop, "pages", PAGE_THREADS, QUEUE_MAX);
    reg->downloads = pool_new(reg->loop, "downloads", DOWNLOAD_THREADS, QUEUE_MAX);
    return 0;
}

static void packages_tell_failure(const struct err *err)
{
    struct sup_writer w;

    log_error("the registry cannot start: %s", err->msg);
    sup_begin(&w, (enum sup_msg_type)PACKAGES_FAILED, 0);
    sup_put_err(&w, err);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(PACKAGES_FD_CONTROL, buf_data(&w.buf), w.buf.len, NULL, 0, 0);
    sup_writer_done(&w);
}

/* Downloads may still run: they hold nothing but files in tmp/, which the next start clears. */
int packages_main(void)
{
    static struct packages reg = {.dirfd = -1, .wake_fd = -1}; /* threads see it to the very end */
    _cleanup_err_ struct err err = ERR_INIT;

    json_need_memory();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_NAME, "ripcord-registr", 0, 0, 0);
    fcntl(PACKAGES_FD_CONTROL, F_SETFD, FD_CLOEXEC);
    if (packages_bring_up(&reg, &err) < 0) {
        packages_tell_failure(&err);
        _exit(1);
    }
    control_ready(reg.control);
    loop_run(reg.loop);
    _exit(0);
}
