#include "image/build/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/archive/layer-import.h"
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
#include "proto/plan.h"

enum { LOWER_MAX = 4000 };

/* A layer that took this long is synced to disk at once; the others are synced with the image. */
#define SYNC_AFTER (2 * USEC_PER_SEC)

/* ---- the folder ---- */

static int workspace_make(const struct workspace *w, mode_t mode, struct err *err, const char *name)
{
    if (mkdirat(w->dir, name, mode) < 0 || fchmodat(w->dir, name, mode, 0) < 0)
        return err_sys(err, errno, "make folder '%s' of the build", name);
    return 0;
}

static int workspace_make_folders(struct workspace *w, struct err *err)
{
    static const char *const folders[] = {"context", "none", "root", "src"};
    int r;

    if (mkdirat(w->store->dir, w->path, 0755) < 0)
        return err_sys(err, errno, "make '%s'", w->path);
    r = dir_open(w->store->dir, w->path, &w->dir, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        r = workspace_make(w, 0755, err, folders[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

int workspace_open(struct images *s, const struct confined_ids *ids, const char *name,
                   struct workspace *ret, struct err *err)
{
    struct workspace w = {.store = s, .ids = ids, .path = xasprintf("tmp/%s", name), .dir = -1};
    int r = workspace_make_folders(&w, err);

    if (r < 0) {
        workspace_done(&w);
        return err_wrap(err, "begin the build");
    }
    *ret = w;
    return 0;
}

void workspace_done(struct workspace *w)
{
    w->dir = fd_close(w->dir);
    free(w->path);
    w->path = NULL;
}

static bool workspace_is_uncompressed_tar(int fd)
{
    static const char magic[] = "ustar";
    char found[sizeof(magic) - 1];

    return pread(fd, found, sizeof(found), 257) == (ssize_t)sizeof(found) &&
           memcmp(found, magic, sizeof(found)) == 0;
}

int workspace_unpack_context(struct workspace *w, int fd, bool digest_only, struct err *err)
{
    const struct confined_ids own = {.kind = CONFINED_OWN};
    const struct layer_import_in in = {.range = {.fd = fd, .size = UINT64_MAX},
                                       .max = UNPACK_BYTES_MAX};
    struct layer_import_out out = {0};
    _cleanup_close_ int dir = -1;
    int r;

    w->digest_only = digest_only;
    r = dir_open(w->dir, "context", &dir, err);
    if (r < 0)
        return err_wrap(err, "the build context");
    if (digest_only || workspace_is_uncompressed_tar(fd))
        r = layer_import_unpack_plain(dir, fd, digest_only ? UNPACK_DIGEST_ONLY : 0, err);
    else
        r = layer_import_unpack(dir, &own, &in, &out, err);
    return r < 0 ? err_wrap(err, "the build context") : 0;
}

int workspace_folder(struct workspace *w, mode_t mode, char **ret, struct err *err)
{
    _cleanup_free_ char *name = xasprintf("m%u", ++w->n);
    int r = workspace_make(w, mode, err, name);

    if (r < 0)
        return r;
    *ret = TAKE_PTR(name);
    return 0;
}

int workspace_new_layer(struct workspace *w, unsigned *ret, struct err *err)
{
    unsigned n = ++w->n;
    _cleanup_free_ char *top = xasprintf("%u", n), *fs = xasprintf("%u/fs", n);
    int r;

    r = workspace_make(w, 0700, err, top);
    if (r < 0)
        return r;
    r = workspace_make(w, 0755, err, fs);
    if (r < 0)
        return r;
    w->layer_began = time_mono();
    *ret = n;
    return 0;
}

/* ---- storing a layer ---- */

struct workspace_packing {
    unsigned n;
    int out;
};

struct workspace_measured {
    struct pack_stats stats;
    uint64_t bytes;
};

/* In the child. */
static int workspace_pack_layer(void *arg, int root, void *out, struct err *err)
{
    struct workspace_packing *p = arg;
    struct workspace_measured *m = out;
    _cleanup_free_ char *fs = xasprintf("%u/fs", p->n);
    _cleanup_close_ int dir = -1;
    int r;

    _Static_assert(sizeof(*m) <= CONFINED_OUT_MAX, "it fits");
    r = dir_open(root, fs, &dir, err);
    if (r < 0)
        return r;
    r = layer_cleanup(dir, &m->bytes, err);
    if (r < 0)
        return r;
    return pack_layer(dir, p->out, &m->stats, err);
}

/* The digest is computed here from the packed bytes, because the child is not trusted with it. */
static int workspace_measure(struct workspace *w, unsigned n, char digest[static DIGEST_MAX],
                             struct workspace_measured *ret, struct err *err)
{
    struct workspace_packing p = {.n = n};
    struct confined_job job = {.fn = workspace_pack_layer, .arg = &p, .dir = w->dir, .trees = true};
    _cleanup_(confined_done) struct confined child = CONFINED_INIT;
    _cleanup_close_ int out = -1;
    int r;

    r = confined_start_piped(&job, false, &p.out, w->ids, &child, &out, err);
    if (r < 0)
        return r;
    r = confined_drain(out, NULL, NULL, digest, err);
    if (r < 0)
        return r;
    out = fd_close(out);
    return confined_wait(&child, ret, sizeof(*ret), err);
}

int workspace_commit_layer(struct workspace *w, unsigned n, char digest[static DIGEST_MAX],
                           struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s/%u", w->path + strlen("tmp/"), n);
    _cleanup_json_ json_t *layers = NULL;
    struct workspace_measured m = {0};
    int r;

    r = workspace_measure(w, n, digest, &m, err);
    if (r < 0)
        return err_wrap(err, "read the new layer");
    if (m.stats.entries == 0)
        return 0;
    if (images_has_layer(w->store, digest))
        return 1;
    r = images_put_layer(w->store, digest, name, m.bytes, err);
    if (r < 0)
        return r;
    if (time_mono() - w->layer_began > SYNC_AFTER) {
        layers = json_pack("[s]", digest);
        r = images_settle(w->store, layers, err);
        if (r < 0)
            return r;
    }
    return 1;
}

/* ---- children with a root ---- */

/*
 * Appends short names for the layers to `lower`, the topmost first: the kernel limits a mount
 * option to one page, and digests are long.
 */
static int workspace_link_layers(struct workspace *w, char kind, unsigned n, char *const *layers,
                                 struct buf *lower, struct err *err)
{
    _cleanup_free_ char *folder = xasprintf("%c%u", kind, n);
    _cleanup_strv_ char **stack = images_stack(layers);
    size_t count = strv_len(stack);
    int r = workspace_make(w, 0755, err, folder);

    if (r < 0)
        return r;
    for (size_t i = 0; i < count; i++) {
        _cleanup_free_ char *name = xasprintf("%s/%zu", folder, i);
        _cleanup_free_ char *layer = images_layer_path(w->store, stack[i]);
        _cleanup_free_ char *target = xasprintf("../../../%s", layer);

        if (symlinkat(target, w->dir, name) < 0)
            return err_sys(err, errno, "make a link to a layer");
        if (buf_appendf(lower, "%s%s", i ? ":" : "", name) < 0)
            return err_set(err, ERR_LIMIT, "too many layers for one mount");
    }
    if (!count && buf_append_str(lower, "none") < 0)
        return err_set(err, ERR_LIMIT, "too many layers for one mount");
    return 0;
}

struct workspace_mounts {
    const struct workspace_job *job;
    struct buf lower, from;
    char *upper, *work, *from_upper, *from_work; /* owned */
};

static void workspace_mounts_done(struct workspace_mounts *t)
{
    buf_done(&t->lower);
    buf_done(&t->from);
    free(t->upper);
    free(t->work);
    free(t->from_upper);
    free(t->from_work);
}

static int workspace_mount_at(const struct overlay *o, const char *place, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r = overlay_mount(o, &fd, err);

    if (r < 0)
        return r;
    return mount_attach(fd, AT_FDCWD, place, err);
}

static int workspace_cover(const char *with, const char *place, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r = mount_clone(AT_FDCWD, with, MOUNT_SAFE, &fd, err);

    if (r < 0)
        return r;
    r = mount_set(fd, MOUNT_SAFE | MOUNT_RDONLY, -1, err);
    if (r < 0)
        return r;
    return mount_attach(fd, AT_FDCWD, place, err);
}

/*
 * Covers /usr with a read-only folder: a sandbox on image `host` has the machine's own /usr there,
 * which would hide whatever the step writes. The same for /bin and others that are folders.
 */
static int workspace_cover_usr(struct err *err)
{
    static const char *const names[PLAN_SPLIT_MAX] = {PLAN_SPLIT_NAMES};
    int r = workspace_cover("usr", "root/usr", err);

    for (int i = 0; i < PLAN_SPLIT_MAX && r >= 0; i++) {
        char usr[16], place[16];
        struct stat st;

        snprintf(usr, sizeof(usr), "usr/%s", names[i]);
        snprintf(place, sizeof(place), "root/%s", names[i]);
        if (lstat(place, &st) == 0 && S_ISDIR(st.st_mode))
            r = workspace_cover(usr, place, err);
    }
    return r;
}

/* In the child, before it is confined. */
static int workspace_mount_trees(void *arg, struct err *err)
{
    struct workspace_mounts *t = arg;
    struct overlay root = {buf_data(&t->lower), t->upper, t->work, true};
    struct overlay from = {buf_data(&t->from), t->from_upper, t->from_work, true};
    int r = mount_make_private(err);

    if (r < 0)
        return r;
    if (t->job->mount_root) {
        r = workspace_mount_at(&root, "root", err);
        if (r < 0)
            return r;
        if (images_begin_with_host(t->job->layers)) {
            r = workspace_cover_usr(err);
            if (r < 0)
                return r;
        }
    }
    return t->job->from ? workspace_mount_at(&from, "src", err) : 0;
}

static int workspace_run_job(void *arg, int root, void *out, struct err *err)
{
    struct workspace_mounts *t = arg;

    return t->job->find ? t->job->find(t->job->arg, root, out, err)
                        : t->job->fn(t->job->arg, root, err);
}

/*
 * The folder that covers /usr. It has the targets of /bin, /lib and similar links, so that these
 * resolve. Another stage may make it at the same time.
 */
static int workspace_make_usr(const struct workspace *w, struct err *err)
{
    static const char *const folders[] = {"usr",       "usr/bin",   "usr/sbin",  "usr/lib",
                                          "usr/lib32", "usr/lib64", "usr/libx32"};

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (mkdirat(w->dir, folders[i], 0755) < 0 && errno != EEXIST)
            return err_sys(err, errno, "make folder '%s' of the build", folders[i]);
    return 0;
}

static int workspace_prepare_root(struct workspace *w, unsigned n, struct workspace_mounts *t,
                                  struct err *err)
{
    int r;

    t->upper = xasprintf("%u/fs", t->job->n);
    t->work = xasprintf("w%u", n);
    r = workspace_link_layers(w, 'l', n, t->job->layers, &t->lower, err);
    if (r < 0)
        return r;
    if (images_begin_with_host(t->job->layers)) {
        r = workspace_make_usr(w, err);
        if (r < 0)
            return r;
    }
    return workspace_make(w, 0700, err, t->work);
}

static int workspace_prepare_src(struct workspace *w, unsigned n, struct workspace_mounts *t,
                                 struct err *err)
{
    int r;

    t->from_upper = xasprintf("u%u", n);
    t->from_work = xasprintf("v%u", n);
    r = workspace_link_layers(w, 'f', n, t->job->from, &t->from, err);
    if (r < 0)
        return r;
    r = workspace_make(w, 0755, err, t->from_upper);
    if (r < 0)
        return r;
    return workspace_make(w, 0700, err, t->from_work);
}

int workspace_run(struct workspace *w, const struct workspace_job *job, struct err *err)
{
    _cleanup_(workspace_mounts_done) struct workspace_mounts t = {
        .job = job, .lower = BUF_INIT(LOWER_MAX), .from = BUF_INIT(LOWER_MAX)};
    struct confined_job child_job = {.fn = workspace_run_job,
                                     .arg = &t,
                                     .prepare = workspace_mount_trees,
                                     .dir = w->dir,
                                     .trees = true};
    _cleanup_(confined_done) struct confined child = CONFINED_INIT;
    unsigned n = ++w->n; /* two jobs may work on one layer, each with its own mounts */
    int r;

    if (job->mount_root) {
        r = workspace_prepare_root(w, n, &t, err);
        if (r < 0)
            return r;
    }
    if (job->from) {
        r = workspace_prepare_src(w, n, &t, err);
        if (r < 0)
            return r;
    }
    r = confined_start(&child_job, w->ids, &child, err);
    if (r < 0)
        return r;
    return confined_wait(&child, job->out, job->out_len, err);
}
