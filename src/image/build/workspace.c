#include "image/build/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/archive/layer.h"
#include "image/archive/pack.h"
#include "image/build/layer-cleanup.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/mount.h"
#include "lib/os/overlay.h"

enum { LOWER_MAX = 4000 };

/* A layer that has taken this long is to outlive a crash at once; others wait for the image. */
#define SETTLE_AFTER (2 * USEC_PER_SEC)

/* ---- the folder ---- */

static int workspace_make(const struct workspace *w, mode_t mode, struct err *err, const char *name)
{
    if (mkdirat(w->dir, name, mode) < 0 || fchmodat(w->dir, name, mode, 0) < 0)
        return err_sys(err, errno, "make folder '%s' of the build", name);
    return 0;
}

int workspace_open(struct images *s, const struct confined_ids *ids, const char *name,
                   struct workspace *ret, struct err *err)
{
    static const char *const folders[] = {"context", "none", "root", "src"};
    struct workspace w = {.store = s, .ids = ids, .path = xasprintf("tmp/%s", name), .dir = -1};
    int r = mkdirat(s->dir, w.path, 0755) < 0 ? err_sys(err, errno, "make '%s'", w.path) : 0;

    if (r >= 0)
        r = dir_open(s->dir, w.path, &w.dir, err);
    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(folders); i++)
        r = workspace_make(&w, 0755, err, folders[i]);
    if (r < 0)
        workspace_done(&w);
    else
        *ret = w;
    return r < 0 ? err_wrap(err, "begin the build") : 0;
}

void workspace_done(struct workspace *w)
{
    w->dir = fd_close(w->dir);
    free(w->path);
    w->path = NULL;
}

static bool workspace_is_plain(int fd)
{
    static const char magic[] = "ustar";
    char found[sizeof(magic) - 1];

    return pread(fd, found, sizeof(found), 257) == (ssize_t)sizeof(found) &&
           memcmp(found, magic, sizeof(found)) == 0;
}

static int workspace_unpack_any(int dir, int fd, struct err *err)
{
    const struct confined_ids own = {.kind = CONFINED_OWN};
    const struct layer_in in = {.range = {.fd = fd, .size = UINT64_MAX}};
    struct layer_out out = {0};

    return layer_unpack(dir, &own, &in, &out, err);
}

int workspace_unpack_context(struct workspace *w, int fd, bool digest_only, struct err *err)
{
    _cleanup_close_ int dir = -1;
    int r = dir_open(w->dir, "context", &dir, err);

    w->digest_only = digest_only;
    if (r >= 0 && (digest_only || workspace_is_plain(fd)))
        r = layer_unpack_plain(dir, fd, digest_only ? UNPACK_DIGEST_ONLY : 0, err);
    else if (r >= 0)
        r = workspace_unpack_any(dir, fd, err);
    return r < 0 ? err_wrap(err, "the build context") : 0;
}

int workspace_folder(struct workspace *w, mode_t mode, char **ret, struct err *err)
{
    _cleanup_free_ char *name = xasprintf("m%u", ++w->n);
    int r = workspace_make(w, mode, err, name);

    if (r >= 0)
        *ret = TAKE_PTR(name);
    return r;
}

int workspace_new_layer(struct workspace *w, unsigned *ret, struct err *err)
{
    unsigned n = ++w->n;
    _cleanup_free_ char *top = xasprintf("%u", n), *fs = xasprintf("%u/fs", n);
    int r = workspace_make(w, 0700, err, top);

    if (r >= 0)
        r = workspace_make(w, 0755, err, fs);
    if (r >= 0)
        *ret = n;
    w->began = time_mono();
    return r;
}

/* ---- a layer's way into the store ---- */

struct workspace_packing {
    unsigned n;
    int out;
};

struct workspace_measured {
    struct pack_stats stats;
    uint64_t bytes;
};

static int workspace_run_pack(void *arg, int root, void *out, struct err *err)
{
    struct workspace_packing *p = arg;
    struct workspace_measured *m = out;
    _cleanup_free_ char *fs = xasprintf("%u/fs", p->n);
    _cleanup_close_ int dir = -1;
    int r = dir_open(root, fs, &dir, err);

    _Static_assert(sizeof(*m) <= CONFINED_OUT_MAX, "it fits");
    if (r >= 0)
        r = layer_cleanup(dir, &m->bytes, err);
    return r < 0 ? r : pack_layer(dir, p->out, &m->stats, err);
}

/* What it is known by is counted here, from the bytes: the child cannot say what it is. */
static int workspace_measure(struct workspace *w, unsigned n, char digest[static DIGEST_MAX],
                             struct workspace_measured *ret, struct err *err)
{
    struct workspace_packing p = {.n = n};
    struct confined_job job = {.fn = workspace_run_pack, .arg = &p, .dir = w->dir, .trees = true};
    struct confined child = CONFINED_INIT;
    int out = -1, r;

    r = confined_start_piped(&job, false, &p.out, w->ids, &child, &out, err);
    if (r >= 0)
        r = confined_drain(out, NULL, NULL, digest, err);
    fd_close(out);
    if (r >= 0)
        r = confined_wait(&child, ret, sizeof(*ret), err);
    confined_done(&child);
    return r < 0 ? err_wrap(err, "read the new layer") : 0;
}

static int workspace_put(struct workspace *w, const char *digest, const char *name, uint64_t bytes,
                         struct err *err)
{
    _cleanup_json_ json_t *layers = json_pack("[s]", digest);
    int r = images_put_layer(w->store, digest, name, bytes, err);

    if (r >= 0 && time_mono() - w->began > SETTLE_AFTER)
        r = images_settle(w->store, layers, err);
    return r;
}

int workspace_commit_layer(struct workspace *w, unsigned n, char digest[static DIGEST_MAX],
                           struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s/%u", w->path + strlen("tmp/"), n);
    struct workspace_measured m = {0};
    int r = workspace_measure(w, n, digest, &m, err);

    if (r < 0 || m.stats.entries == 0)
        return r;
    if (!images_has_layer(w->store, digest))
        r = workspace_put(w, digest, name, m.bytes, err);
    return r < 0 ? r : 1;
}

/* ---- children with a root ---- */

/* Short names for the layers, the topmost first: a mount option has but a page. */
static int workspace_link_layers(struct workspace *w, char kind, unsigned n, char *const *layers,
                                 struct buf *lower, struct err *err)
{
    _cleanup_free_ char *folder = xasprintf("%c%u", kind, n);
    _cleanup_strv_ char **stack = images_stack(layers);
    size_t count = strv_len(stack);
    int r = workspace_make(w, 0755, err, folder);

    for (size_t i = 0; r >= 0 && i < count; i++) {
        _cleanup_free_ char *name = xasprintf("%s/%zu", folder, i);
        _cleanup_free_ char *layer = images_layer_path(w->store, stack[i]);
        _cleanup_free_ char *target = xasprintf("../../../%s", layer);

        if (symlinkat(target, w->dir, name) < 0)
            r = err_sys(err, errno, "make a link to a layer");
        else if (buf_appendf(lower, "%s%s", i ? ":" : "", name) < 0)
            r = err_set(err, ERR_LIMIT, "too many layers for one mount");
    }
    if (r >= 0 && !count && buf_append_str(lower, "none") < 0)
        r = -ERR_LIMIT;
    return r;
}

struct workspace_mounts {
    const struct workspace_job *job;
    struct buf lower, from;
    char *upper, *work, *from_upper, *from_work;
};

static int workspace_mount_at(const struct overlay *o, const char *place, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r = overlay_mount(o, &fd, err);

    return r < 0 ? r : mount_attach(fd, AT_FDCWD, place, err);
}

/* What was put there would be hidden by the machine's own, which nobody writes to. */
static int workspace_close_usr(struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r = mount_clone(AT_FDCWD, "usr", MOUNT_SAFE, &fd, err);

    if (r >= 0)
        r = mount_set(fd, MOUNT_SAFE | MOUNT_RDONLY, -1, err);
    return r < 0 ? r : mount_attach(fd, AT_FDCWD, "root/usr", err);
}

static int workspace_mount_trees(void *arg, struct err *err)
{
    struct workspace_mounts *t = arg;
    struct overlay root = {buf_data(&t->lower), t->upper, t->work, true};
    struct overlay from = {buf_data(&t->from), t->from_upper, t->from_work, true};
    int r = mount_make_private(err);

    if (r >= 0 && t->job->mount_root)
        r = workspace_mount_at(&root, "root", err);
    if (r >= 0 && t->job->mount_root && images_begin_with_host(t->job->layers))
        r = workspace_close_usr(err);
    if (r >= 0 && t->job->from)
        r = workspace_mount_at(&from, "src", err);
    return r;
}

static int workspace_run_job(void *arg, int root, void *out, struct err *err)
{
    struct workspace_mounts *t = arg;

    return t->job->find ? t->job->find(t->job->arg, root, out, err)
                        : t->job->fn(t->job->arg, root, err);
}

static void workspace_mounts_done(struct workspace_mounts *t)
{
    buf_done(&t->lower);
    buf_done(&t->from);
    free(t->upper);
    free(t->work);
    free(t->from_upper);
    free(t->from_work);
}

/* Stands for the machine's: /bin and its like lead into it. Others may be at it, too. */
static int workspace_make_usr(const struct workspace *w, struct err *err)
{
    static const char *const folders[] = {"usr",       "usr/bin",   "usr/sbin",  "usr/lib",
                                          "usr/lib32", "usr/lib64", "usr/libx32"};

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (mkdirat(w->dir, folders[i], 0755) < 0 && errno != EEXIST)
            return err_sys(err, errno, "make folder '%s' of the build", folders[i]);
    return 0;
}

static int workspace_prepare_mounts(struct workspace *w, const struct workspace_job *job,
                                    struct workspace_mounts *t, struct err *err)
{
    unsigned own = ++w->n; /* several jobs may work on one layer, each with mounts of its own */
    int r = 0;

    t->upper = xasprintf("%u/fs", job->n);
    t->work = xasprintf("w%u", own);
    t->from_upper = xasprintf("u%u", own);
    t->from_work = xasprintf("v%u", own);
    if (job->mount_root)
        r = workspace_link_layers(w, 'l', own, job->layers, &t->lower, err);
    if (r >= 0 && job->mount_root && images_begin_with_host(job->layers))
        r = workspace_make_usr(w, err);
    if (r >= 0 && job->mount_root)
        r = workspace_make(w, 0700, err, t->work);
    if (r >= 0 && job->from)
        r = workspace_link_layers(w, 'f', own, job->from, &t->from, err);
    if (r >= 0 && job->from)
        r = workspace_make(w, 0755, err, t->from_upper);
    if (r >= 0 && job->from)
        r = workspace_make(w, 0700, err, t->from_work);
    return r;
}

int workspace_run(struct workspace *w, const struct workspace_job *job, struct err *err)
{
    struct workspace_mounts t = {
        .job = job, .lower = BUF_INIT(LOWER_MAX), .from = BUF_INIT(LOWER_MAX)};
    struct confined_job child_job = {.fn = workspace_run_job,
                                     .arg = &t,
                                     .prepare = workspace_mount_trees,
                                     .dir = w->dir,
                                     .trees = true};
    struct confined child = CONFINED_INIT;
    int r = workspace_prepare_mounts(w, job, &t, err);

    if (r >= 0)
        r = confined_start(&child_job, w->ids, &child, err);
    if (r >= 0)
        r = confined_wait(&child, job->out, job->out_len, err);
    confined_done(&child);
    workspace_mounts_done(&t);
    return r;
}
