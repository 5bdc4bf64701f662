/*
 * watch: changes of a folder, or of a tree, by inotify(7). Each folder has a watch of its own; a
 * new folder gets one, and what lies in it by then is reported too, so that nothing is missed. A
 * file is watched through its folder, because editors replace files.
 *
 * When the kernel's queue overflows, events are lost. That is reported, and the watches are made
 * anew, because new folders may be among what was lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "files/folder.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum {
    WATCH_FOLDERS_MAX = 8192,
    WATCH_NUMBERS_MAX = 1 << 20, /* of watches in the life of one request */
    WATCH_BUFFER = 64 << 10,
    WATCH_PAIR_MS = 20, /* how long a rename may take to show its second half */
    WATCH_MASK = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY | IN_CLOSE_WRITE |
                 IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
};

struct files_watcher {
    struct files_task *job;
    int fd; /* of inotify */
    int top_wd;
    dev_t dev; /* of the watched folder. It is not held open, or the kernel would not report */
    ino_t ino; /* its end */
    const char *shown; /* its path */
    const char *only;  /* the name of the watched file, or NULL */
    bool recursive;
    char **paths; /* owned: by watch number, below the top; "" for the top; NULL: no watch */
    int n_paths;
    unsigned n_folders;
    bool lost;     /* a folder could not be watched; reported once */
    bool announce; /* report what is found while watches are made */
    bool gone;     /* the watched folder was removed or moved */
    char *from;    /* owned: a name that was moved away, whose new one may follow */
    uint32_t cookie;
    bool from_folder;
    char last[PATH_MAX]; /* the last event, which is not repeated at once */
    enum files_event last_event;
};

/* ---- events ---- */

static int files_watch_send(struct files_watcher *w, enum files_event event, const char *rel,
                            const char *to, bool folder, struct err *err)
{
    struct files_task *j = w->job;
    _cleanup_free_ char *path = rel ? files_join(w->shown, rel) : NULL;
    _cleanup_free_ char *target = to ? files_join(w->shown, to) : NULL;

    files_answer(j, FILES_ITEM);
    files_put_u64(&j->out, FILES_TAG_EVENT, event);
    files_put_str(&j->out, FILES_TAG_PATH, path ? path : w->job->path);
    files_put_str(&j->out, FILES_TAG_TO, target);
    if (folder)
        files_put_u64(&j->out, FILES_TAG_TYPE, FILES_IS_FOLDER);
    return files_send(j, err);
}

/* A write shows as several events of the kernel. */
static bool files_watch_repeats(struct files_watcher *w, enum files_event event, const char *rel)
{
    bool same = event == w->last_event && STREQ(rel, w->last) &&
                (event == FILES_EVENT_MODIFIED || event == FILES_EVENT_ATTRIBUTES);

    w->last_event = event;
    snprintf(w->last, sizeof(w->last), "%s", rel);
    return same;
}

static int files_watch_report(struct files_watcher *w, enum files_event event, const char *rel,
                              bool folder, struct err *err)
{
    return files_watch_repeats(w, event, rel) ? 0
                                              : files_watch_send(w, event, rel, NULL, folder, err);
}

/* ---- watches ---- */

static void files_watch_forget(struct files_watcher *w, int wd)
{
    if (wd < 0 || wd >= w->n_paths || !w->paths[wd])
        return;
    free(TAKE_PTR(w->paths[wd]));
    w->n_folders--;
}

static void files_watch_keep(struct files_watcher *w, int wd, const char *rel)
{
    if (wd >= w->n_paths) {
        int n = wd + 64;

        w->paths = xrealloc(w->paths, (size_t)n * sizeof(char *));
        memset(w->paths + w->n_paths, 0, (size_t)(n - w->n_paths) * sizeof(char *));
        w->n_paths = n;
    }
    if (!w->paths[wd])
        w->n_folders++;
    free(w->paths[wd]);
    w->paths[wd] = xstrdup(rel);
}

/* Watches an open folder. There is no call for that but by a name, and "." cannot be replaced. 1:
 * it is watched; 0: there are too many. */
static int files_watch_folder(struct files_watcher *w, int fd, const char *rel, struct err *err)
{
    int wd = -1, errnum;

    if (w->n_folders < WATCH_FOLDERS_MAX && fchdir(fd) == 0) {
        wd = inotify_add_watch(w->fd, ".", WATCH_MASK);
        errnum = errno;
        (void)!chdir("/");
        errno = errnum;
    } else if (w->n_folders >= WATCH_FOLDERS_MAX) {
        errno = ENOSPC;
    }
    if (wd > WATCH_NUMBERS_MAX)
        return err_set(err, ERR_LIMIT, "watch of '%s': too many folders came and went", w->shown);
    if (wd >= 0) {
        files_watch_keep(w, wd, rel);
        if (!*rel)
            w->top_wd = wd;
        return 1;
    }
    if (errno != ENOSPC && errno != EACCES && errno != ENOENT)
        return tree_err(err, errno, "watch '%s'", w->shown);
    w->lost |= errno == ENOSPC;
    return 0;
}

static int files_watch_visit(void *arg, const struct files_node *n, struct err *err)
{
    struct files_watcher *w = arg;
    _cleanup_close_ int fd = -1;
    const char *rel = n->path + strlen(w->shown);
    bool folder = S_ISDIR(n->st.st_mode);
    int r;

    rel += strspn(rel, "/");
    r = w->announce ? files_watch_report(w, FILES_EVENT_CREATED, rel, folder, err) : 0;
    if (r < 0 || !folder)
        return r;
    fd = openat(n->dirfd, n->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return FILES_SKIP; /* gone, or not readable */
    r = files_watch_folder(w, fd, rel, err);
    return r < 0 ? r : FILES_GO_ON;
}

/* Watches the folder `rel` and what is below it. Takes fd. */
static int files_watch_tree(struct files_watcher *w, int fd, const char *rel, struct err *err)
{
    _cleanup_free_ char *path = *rel ? files_join(w->shown, rel) : xstrdup(w->shown);
    struct files_walk walk = {
        .job = w->job, .visit = files_watch_visit, .arg = w, .depth_max = UINT32_MAX};
    int r = files_watch_folder(w, fd, rel, err);

    if (r < 0 || !w->recursive) {
        fd_close(fd);
        return r;
    }
    return files_walk_from(&walk, fd, path, err);
}

/* The watched folder, or -1: it is not there any more. */
static int files_watch_reopen(const struct files_watcher *w)
{
    _cleanup_close_ int fd = files_open(w->shown, O_RDONLY | O_DIRECTORY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
        return -1;
    return TAKE_FD(fd);
}

/* A folder has come into the tree. */
static int files_watch_enter(struct files_watcher *w, const char *rel, struct err *err)
{
    _cleanup_close_ int top = w->recursive ? files_watch_reopen(w) : -1;
    int fd, r;

    if (top < 0)
        return 0;
    fd = fd_open_beneath(top, rel, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return 0; /* gone, or a link by now; its events show that */
    w->announce = true;
    r = files_watch_tree(w, fd, rel, err);
    w->announce = false;
    return r;
}

/* The rest of a path below `rel`, or NULL. */
static const char *files_watch_below(const char *path, const char *rel)
{
    size_t len = strlen(rel);

    return path && strncmp(path, rel, len) == 0 && (path[len] == '/' || !path[len]) ? path + len
                                                                                    : NULL;
}

/* A folder was renamed (to NULL: moved away): its watches and those below it go along. */
static void files_watch_rename(struct files_watcher *w, const char *from, const char *to)
{
    for (int wd = 0; wd < w->n_paths; wd++) {
        const char *rest = files_watch_below(w->paths[wd], from);

        if (!rest)
            continue;
        if (to) {
            char *now = xasprintf("%s%s", to, rest);

            free(w->paths[wd]);
            w->paths[wd] = now;
        } else {
            (void)inotify_rm_watch(w->fd, wd);
            files_watch_forget(w, wd);
        }
    }
}

/* ---- what the kernel reports ---- */

/* A name that was moved away and did not come back is gone from the tree. */
static int files_watch_settle(struct files_watcher *w, struct err *err)
{
    _cleanup_free_ char *from = TAKE_PTR(w->from);

    if (!from)
        return 0;
    if (w->from_folder)
        files_watch_rename(w, from, NULL);
    return files_watch_report(w, FILES_EVENT_REMOVED, from, w->from_folder, err);
}

static int files_watch_moved(struct files_watcher *w, const char *rel, bool folder, struct err *err)
{
    _cleanup_free_ char *from = TAKE_PTR(w->from);

    if (folder)
        files_watch_rename(w, from, rel);
    *w->last = '\0';
    return files_watch_send(w, FILES_EVENT_MOVED, from, rel, folder, err);
}

static int files_watch_came(struct files_watcher *w, const char *rel, bool folder, struct err *err)
{
    int r = files_watch_report(w, FILES_EVENT_CREATED, rel, folder, err);

    return r < 0 || !folder ? r : files_watch_enter(w, rel, err);
}

static int files_watch_overflow(struct files_watcher *w, struct err *err)
{
    int fd, r = files_watch_send(w, FILES_EVENT_OVERFLOW, NULL, NULL, false, err);

    if (r < 0)
        return r;
    fd = files_watch_reopen(w);
    if (fd >= 0)
        return files_watch_tree(w, fd, "", err);
    w->gone = true;
    return 0;
}

static int files_watch_name(struct files_watcher *w, const struct inotify_event *e, struct err *err)
{
    const char *dir = w->paths[e->wd];
    _cleanup_free_ char *rel = *dir ? files_join(dir, e->name) : xstrdup(e->name);
    bool folder = e->mask & IN_ISDIR;

    if (w->only && !STREQ(w->only, rel) && !(e->mask & IN_MOVED_TO))
        return 0;
    if (e->mask & IN_MOVED_FROM) {
        w->from = TAKE_PTR(rel);
        w->from_folder = folder;
        w->cookie = e->cookie;
        return 0;
    }
    if (w->from)
        return files_watch_moved(w, rel, folder, err);
    if (w->only && !STREQ(w->only, rel))
        return 0;
    if (e->mask & (IN_CREATE | IN_MOVED_TO))
        return files_watch_came(w, rel, folder, err);
    if (e->mask & IN_DELETE)
        return files_watch_report(w, FILES_EVENT_REMOVED, rel, folder, err);
    if (e->mask & (IN_MODIFY | IN_CLOSE_WRITE))
        return files_watch_report(w, FILES_EVENT_MODIFIED, rel, folder, err);
    return e->mask & IN_ATTRIB ? files_watch_report(w, FILES_EVENT_ATTRIBUTES, rel, folder, err)
                               : 0;
}

static int files_watch_event(struct files_watcher *w, const struct inotify_event *e,
                             struct err *err)
{
    bool pair = w->from && e->mask & IN_MOVED_TO && e->cookie == w->cookie;
    int r = pair ? 0 : files_watch_settle(w, err);

    if (r < 0)
        return r;
    if (e->mask & IN_Q_OVERFLOW)
        return files_watch_overflow(w, err);
    if (e->mask & IN_IGNORED)
        files_watch_forget(w, e->wd);
    if (e->wd == w->top_wd && e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT))
        w->gone = true;
    if (e->wd < 0 || e->wd >= w->n_paths || !w->paths[e->wd] || !e->len)
        return 0;
    return files_watch_name(w, e, err);
}

static int files_watch_read(struct files_watcher *w, char *buffer, struct err *err)
{
    ssize_t n = read(w->fd, buffer, WATCH_BUFFER);
    int r = 0;

    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : err_sys(err, errno, "read events");
    for (ssize_t at = 0; at < n && r >= 0 && !w->gone;) {
        const struct inotify_event *e = (const void *)(buffer + at);

        r = files_watch_event(w, e, err);
        at += (ssize_t)(sizeof(*e) + e->len);
    }
    if (r >= 0 && w->lost) {
        w->lost = false;
        r = files_watch_send(w, FILES_EVENT_OVERFLOW, NULL, NULL, false, err);
    }
    return r;
}

static int files_watch_loop(struct files_watcher *w, struct err *err)
{
    _cleanup_free_ char *buffer = xmalloc(WATCH_BUFFER);
    int r = files_watch_send(w, FILES_EVENT_READY, NULL, NULL, false, err);

    while (r >= 0 && !w->gone) {
        r = files_flush(w->job, err);
        if (r < 0)
            return r;
        r = w->job->io->wait(w->job->io->arg, w->fd, w->from ? WATCH_PAIR_MS : -1);
        if (r < 0)
            return files_lost(err);
        r = r ? files_watch_read(w, buffer, err) : files_watch_settle(w, err);
    }
    return r < 0 ? r : files_watch_send(w, FILES_EVENT_GONE, NULL, NULL, false, err);
}

/* ---- the request ---- */

/* The path of the folder to be watched, and the name of a file in it. */
static int files_watch_open(const struct files_watcher *w, char **ret_dir, char **ret_name,
                            struct err *err)
{
    _cleanup_close_ int fd = files_open(w->job->path, O_PATH);
    _cleanup_close_ int parent = -1;
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "watch '%s'", w->job->path);
    if (S_ISDIR(st.st_mode)) {
        *ret_dir = xstrdup(w->job->path);
        return 0;
    }
    if (w->recursive)
        return err_set(err, ERR_CONFLICT, "'%s' is not a folder", w->job->path);
    r = files_open_parent(w->job, w->job->path, false, &parent, ret_name, err);
    if (r < 0)
        return r;
    *ret_dir = xstrndup(w->job->path, (size_t)(strrchr(w->job->path, '/') - w->job->path));
    if (!**ret_dir) {
        free(*ret_dir);
        *ret_dir = xstrdup("/");
    }
    return 0;
}

static int files_watch_start(struct files_watcher *w, struct err *err)
{
    struct stat st;
    int fd, r;

    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0) {
        r = tree_err(err, errno, "watch '%s'", w->job->path);
        return errno == EMFILE ? err_hint(err, "Too many watches. End some of them.") : r;
    }
    r = files_open_folder(w->shown, &fd, err);
    if (r < 0)
        return r;
    if (fstat(fd, &st) == 0) {
        w->dev = st.st_dev;
        w->ino = st.st_ino;
    }
    r = files_watch_tree(w, fd, "", err);
    if (r < 0)
        return r;
    if (w->lost || !w->n_folders)
        return err_set(err, ERR_LIMIT, "watch of '%s': too many folders (at most %d)", w->shown,
                       WATCH_FOLDERS_MAX);
    return 0;
}

int files_watch(struct files_task *j, struct err *err)
{
    _cleanup_free_ struct files_watcher *w = xnew0(struct files_watcher);
    _cleanup_free_ char *dir = NULL, *name = NULL;
    int r;

    *w = (struct files_watcher){.job = j, .fd = -1, .top_wd = -1};
    w->recursive = files_has(j, FILES_TAG_RECURSIVE);
    j->by.at = DEADLINE_NEVER;
    r = files_watch_open(w, &dir, &name, err);
    w->shown = dir;
    w->only = name;
    if (r >= 0)
        r = files_watch_start(w, err);
    if (r >= 0)
        r = files_watch_loop(w, err);
    for (int wd = 0; wd < w->n_paths; wd++)
        free(w->paths[wd]);
    free(w->paths);
    free(w->from);
    fd_close(w->fd);
    return r;
}
