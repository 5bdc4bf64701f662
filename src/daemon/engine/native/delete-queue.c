/*
 * The thread and the engine share a reference-counted struct, so that closing the engine does not
 * wait for the deletion of a million files.
 */
#include "daemon/engine/native/delete-queue.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/process.h"
#include "lib/os/rmtree.h"
#include "proto/supervisor.h"

/* When more folders than this wait, the caller deletes, so that a fast creator cannot fill the
 * disk. */
enum { DELETE_QUEUE_WAITING_MAX = 4096 };

struct delete_queue {
    pthread_mutex_t lock;
    int dirfd;
    unsigned refs;
    uint64_t session; /* with `named`: names in trash/ that no other daemon has given */
    unsigned named;   /* names given */
    unsigned waiting; /* folders that are not deleted yet */
    bool running;     /* the thread exists */
    bool again;       /* a folder came after the thread had listed trash/ */
    bool closing;
    int shim; /* with `ids`, or -1 */
    struct submap ids;
};

static void delete_queue_unref(struct delete_queue *t)
{
    bool last;

    pthread_mutex_lock(&t->lock);
    last = --t->refs == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last)
        return;
    fd_close(t->dirfd);
    fd_close(t->shim);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static bool delete_queue_is_closing(struct delete_queue *t)
{
    bool closing;

    pthread_mutex_lock(&t->lock);
    closing = t->closing;
    pthread_mutex_unlock(&t->lock);
    return closing;
}

static int delete_queue_delete_by_shim(int shim, const struct submap *ids, int dirfd,
                                       const char *name, struct err *err)
{
    char path[32], uid[12], gid[12];
    const char *const argv[] = {"ripcord-shim", "remove", name, uid, gid, NULL};
    const struct process_spec s = {
        .path = path, .argv = argv, .fds = {{dirfd, SUP_FD_CONTROL}}, .n_fds = 1};
    pid_t pid;
    int r;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", shim);
    snprintf(uid, sizeof(uid), "%u", ids->uid);
    snprintf(gid, sizeof(gid), "%u", ids->gid);
    r = process_start(&s, &pid);
    if (r != 0)
        return err_sys(err, r, "start ripcord-shim to remove '%s'", name);
    if (process_wait(pid) != 0)
        return err_set(err, ERR_SYSTEM, "'%s' cannot be removed with mapped ids", name);
    return 0;
}

static int delete_queue_delete(struct delete_queue *t, int dirfd, const char *name, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    struct submap ids;
    int shim, r;

    r = rmtree(dirfd, name, &why);
    pthread_mutex_lock(&t->lock);
    shim = t->shim;
    ids = t->ids;
    pthread_mutex_unlock(&t->lock);
    if (r < 0 && shim >= 0)
        return delete_queue_delete_by_shim(shim, &ids, dirfd, name, err);
    return r < 0 ? err_move(err, &why) : r;
}

static void delete_queue_delete_one(struct delete_queue *t, const char *name)
{
    _cleanup_err_ struct err err = ERR_INIT;

    /* A folder that cannot be deleted stays for the next daemon. */
    if (delete_queue_delete(t, t->dirfd, name, &err) < 0)
        log_debug("delete queue: %s", err.msg);
    pthread_mutex_lock(&t->lock);
    t->waiting -= t->waiting > 0;
    pthread_mutex_unlock(&t->lock);
}

static void delete_queue_delete_all(struct delete_queue *t)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(t->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return;
    }
    for (const struct dirent *e; !delete_queue_is_closing(t) && (e = readdir(d));)
        if (e->d_name[0] != '.')
            delete_queue_delete_one(t, e->d_name);
}

static bool delete_queue_more_to_do(struct delete_queue *t)
{
    bool more;

    pthread_mutex_lock(&t->lock);
    more = t->again && !t->closing;
    t->again = false;
    t->running = more;
    pthread_mutex_unlock(&t->lock);
    return more;
}

static void *delete_queue_main(void *arg)
{
    struct delete_queue *t = arg;

    while (delete_queue_more_to_do(t))
        delete_queue_delete_all(t);
    delete_queue_unref(t);
    return NULL;
}

/* With the lock held. Signals are blocked: other threads handle them. */
static bool delete_queue_start_thread(struct delete_queue *t)
{
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&thread, &attr, delete_queue_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return r == 0;
}

/* With the lock held. */
static void delete_queue_kick(struct delete_queue *t)
{
    t->again = true;
    if (t->running)
        return;
    t->running = true;
    t->refs++;
    if (delete_queue_start_thread(t))
        return;
    t->running = false; /* the next folder tries again */
    t->refs--;
}

struct delete_queue *delete_queue_new(int dirfd)
{
    struct delete_queue *t = xnew0(struct delete_queue);

    pthread_mutex_init(&t->lock, NULL);
    t->dirfd = dirfd;
    t->refs = 1;
    t->shim = -1;
    t->session = time_wall();
    pthread_mutex_lock(&t->lock);
    delete_queue_kick(t);
    pthread_mutex_unlock(&t->lock);
    return t;
}

void delete_queue_use_subids(struct delete_queue *t, int shim, const struct submap *ids)
{
    pthread_mutex_lock(&t->lock);
    t->shim = fcntl(shim, F_DUPFD_CLOEXEC, SUP_FD_PLAN + 1);
    t->ids = *ids;
    delete_queue_kick(t); /* an earlier daemon may have left folders that need these ids */
    pthread_mutex_unlock(&t->lock);
}

void delete_queue_free(struct delete_queue *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->closing = true;
    pthread_mutex_unlock(&t->lock);
    delete_queue_unref(t);
}

int delete_queue_add(struct delete_queue *t, int dirfd, const char *name, struct err *err)
{
    char to[48];
    unsigned n;
    bool full;

    pthread_mutex_lock(&t->lock);
    n = t->named++;
    full = t->waiting >= DELETE_QUEUE_WAITING_MAX;
    pthread_mutex_unlock(&t->lock);

    snprintf(to, sizeof(to), "%llx-%u", (unsigned long long)t->session, n);
    if (full)
        return delete_queue_delete(t, dirfd, name, err);
    if (renameat(dirfd, name, t->dirfd, to) < 0) {
        if (errno == ENOENT)
            return 0;
        return errno == EXDEV ? delete_queue_delete(t, dirfd, name, err)
                              : err_sys(err, errno, "move '%s' to the delete queue", name);
    }
    pthread_mutex_lock(&t->lock);
    t->waiting++;
    delete_queue_kick(t);
    pthread_mutex_unlock(&t->lock);
    return 0;
}
