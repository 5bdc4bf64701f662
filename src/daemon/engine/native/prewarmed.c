#include "daemon/engine/native/prewarmed.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "daemon/engine/native/abilities.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/base/xalloc.h"
#include "lib/os/process.h"
#include "lib/os/quota.h"
#include "lib/os/rmtree.h"
#include "proto/plan.h"
#include "proto/supervisor.h"

enum { PREWARMED_SHIMS = 2, PREWARMED_FOLDERS = 4, PREWARMED_NAME_MAX = 16 };

struct prewarmed {
    int shim, devnull, dirs[PREWARMED_KINDS];
    bool quota;
    pthread_t thread;
    bool threaded;

    pthread_mutex_t lock;
    pthread_cond_t taken;
    bool closing;
    bool stuck; /* everything is made, or cannot be made: nothing to do until one is taken */
    struct prewarmed_shim shims[PREWARMED_SHIMS];
    unsigned n_shims;
    unsigned folders[PREWARMED_KINDS]
                    [PREWARMED_FOLDERS]; /* their numbers, which are also their names */
    unsigned n_folders[PREWARMED_KINDS];
    unsigned last; /* last number given */
};

/* ---- shims ---- */

static int prewarmed_spawn_shim(const struct prewarmed *s, struct prewarmed_shim *ret,
                                struct err *err)
{
    _cleanup_close_ int near = -1, far = -1;
    char path[32];
    /* The shim writes its sandbox's id over the second word. */
    const char *const argv[] = {"ripcord-shim", "spare...........", NULL};
    int pair[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    near = pair[0];
    far = pair[1];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->shim);
    r = process_start(&(const struct process_spec){.path = path,
                                                   .argv = argv,
                                                   .fds = {{s->devnull, STDIN_FILENO},
                                                           {s->devnull, STDOUT_FILENO},
                                                           {s->devnull, STDERR_FILENO},
                                                           {far, SUP_FD_CONTROL}},
                                                   .n_fds = 4},
                      &ret->pid);
    if (r != 0) {
        err_sys(err, r, "start ripcord-shim");
        return native_explain_no_shim(err);
    }
    ret->control = TAKE_FD(near);
    return 0;
}

static void prewarmed_end_shim(struct prewarmed_shim *shim)
{
    shim->control = fd_close(shim->control);
    process_wait(shim->pid);
}

static bool prewarmed_take_shim(struct prewarmed *s, struct prewarmed_shim *ret)
{
    bool found;

    pthread_mutex_lock(&s->lock);
    found = s->n_shims > 0;
    if (found)
        *ret = s->shims[--s->n_shims];
    s->stuck = false;
    pthread_cond_signal(&s->taken);
    pthread_mutex_unlock(&s->lock);
    return found;
}

int prewarmed_shim(struct prewarmed *s, const int fds[], size_t n_fds, struct prewarmed_shim *ret,
                   struct err *err)
{
    int r;

    /* A shim that was killed while it waited does not take its plan. */
    while (prewarmed_take_shim(s, ret)) {
        if (plan_give(ret->control, fds, n_fds, NULL) >= 0)
            return 0;
        prewarmed_end_shim(ret);
    }
    r = prewarmed_spawn_shim(s, ret, err);
    if (r < 0)
        return r;
    r = plan_give(ret->control, fds, n_fds, err);
    if (r < 0)
        prewarmed_end_shim(ret);
    return r;
}

/* ---- folders ---- */

static void prewarmed_folder_name(unsigned number, char name[static PREWARMED_NAME_MAX])
{
    snprintf(name, PREWARMED_NAME_MAX, "%u", number);
}

static bool prewarmed_take_folder(struct prewarmed *s, enum prewarmed_kind kind, unsigned *ret)
{
    bool found;

    pthread_mutex_lock(&s->lock);
    found = s->n_folders[kind] > 0;
    if (found)
        *ret = s->folders[kind][--s->n_folders[kind]];
    s->stuck = false;
    pthread_mutex_unlock(&s->lock);
    return found;
}

int prewarmed_folder(struct prewarmed *s, enum prewarmed_kind kind, int dirfd, const char *name)
{
    char made[PREWARMED_NAME_MAX];
    unsigned number;

    if (!prewarmed_take_folder(s, kind, &number))
        return mkdirat(dirfd, name, 0700) < 0 ? -errno : 0;
    prewarmed_folder_name(number, made);
    if (renameat2(s->dirs[kind], made, dirfd, name, RENAME_NOREPLACE) == 0)
        return 0;
    rmtree(s->dirs[kind], made, NULL);
    return mkdirat(dirfd, name, 0700) < 0 ? -errno : 0;
}

/* Of this daemon, or left by one that was killed. */
static void prewarmed_remove_folders(int dirfd)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            rmtree(dirfd, e->d_name, NULL);
}

/* ---- the thread ---- */

/* With the lock held; releases it during the work. */
static bool prewarmed_make_shim(struct prewarmed *s)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct prewarmed_shim shim;
    int r;

    pthread_mutex_unlock(&s->lock);
    r = prewarmed_spawn_shim(s, &shim, &err);
    if (r < 0)
        log_debug("prewarmed: %s", err.msg);
    pthread_mutex_lock(&s->lock);
    if (r < 0)
        return false;
    s->shims[s->n_shims++] = shim;
    return true;
}

/* The shim makes the folders that are missing, so a failure here is not reported. The project
 * id comes first: only what is made later inherits it. */
static void prewarmed_make_layer(const struct prewarmed *s, int dirfd, const char *name)
{
    static const struct {
        const char *path;
        mode_t mode;
    } folders[] = {{"root", 0700}, {"root/upper", 0755}, {"root/work", 0700}};
    _cleanup_close_ int dir = openat(dirfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (s->quota && quota_assign(dir, NULL) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (mkdirat(dir, folders[i].path, 0700) < 0 ||
            fchmodat(dir, folders[i].path, folders[i].mode, 0) < 0)
            return;
}

static bool prewarmed_make_folder(struct prewarmed *s, enum prewarmed_kind kind)
{
    unsigned number = ++s->last;
    char name[PREWARMED_NAME_MAX];
    int r;

    prewarmed_folder_name(number, name);
    pthread_mutex_unlock(&s->lock);
    r = mkdirat(s->dirs[kind], name, 0700);
    if (r == 0 && kind == PREWARMED_SANDBOX)
        prewarmed_make_layer(s, s->dirs[kind], name);
    pthread_mutex_lock(&s->lock);
    if (r == 0)
        s->folders[kind][s->n_folders[kind]++] = number;
    return r == 0;
}

/* False when nothing is missing, or what is missing cannot be made. */
static bool prewarmed_make_one(struct prewarmed *s)
{
    if (s->closing || s->stuck)
        return false;
    if (s->n_shims < PREWARMED_SHIMS)
        return prewarmed_make_shim(s);
    for (int kind = 0; kind < PREWARMED_KINDS; kind++)
        if (s->n_folders[kind] < PREWARMED_FOLDERS)
            return prewarmed_make_folder(s, kind);
    return false;
}

static void *prewarmed_main(void *arg)
{
    const struct timespec pause = {.tv_nsec = 12000000};
    struct prewarmed *s = arg;

    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        while (prewarmed_make_one(s))
            ;
        s->stuck = true; /* until something is taken */
        while (s->stuck && !s->closing)
            pthread_cond_wait(&s->taken, &s->lock);
        /* The caller that took a shim is about to start a sandbox and needs the processor. A short
         * `run` is over after this pause. */
        pthread_mutex_unlock(&s->lock);
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct prewarmed *prewarmed_new(int shim, int devnull, bool quota,
                                const int dirs[static PREWARMED_KINDS])
{
    struct prewarmed *s = xnew0(struct prewarmed);

    s->shim = shim;
    s->devnull = devnull;
    s->quota = quota;
    memcpy(s->dirs, dirs, sizeof(s->dirs));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->taken, NULL);
    for (int kind = 0; kind < PREWARMED_KINDS; kind++)
        prewarmed_remove_folders(s->dirs[kind]);
    /* Without the thread, each start makes its own. */
    s->threaded = thread_start(&s->thread, prewarmed_main, s) == 0;
    return s;
}

void prewarmed_free(struct prewarmed *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->taken);
    pthread_mutex_unlock(&s->lock);
    if (s->threaded)
        pthread_join(s->thread, NULL);
    for (unsigned i = 0; i < s->n_shims; i++)
        prewarmed_end_shim(&s->shims[i]);
    for (int kind = 0; kind < PREWARMED_KINDS; kind++) {
        prewarmed_remove_folders(s->dirs[kind]);
        fd_close(s->dirs[kind]);
    }
    pthread_cond_destroy(&s->taken);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
