/*
 * The files of a sandbox, <state>/sandboxes/<id>: created, created again for another spec, and put
 * back when the new spec does not start.
 *
 *   meta       a symlink "hash/name": one system call writes it, one reads it
 *   spec       the whole spec, in case the database is lost; an ephemeral sandbox has none
 *   root       upper and work folder of the root's overlay; /cache is in it
 *   meta.old   present while root.old is kept: the meta of the previous spec
 *   root.old   the root of the previous spec
 *
 * native_settle() ends a re-creation, whatever step it had reached: meta.old is written first and
 * goes last. On a disk of its own the shim does all this with the root, as the disk is mounted
 * there.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/engine/mounts.h"
#include "daemon/engine/native/confined.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/disk.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/prewarmed.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/os/overlay.h"
#include "lib/os/quota.h"
#include "lib/os/rmtree.h"

#define META "meta"
#define META_OLD "meta.old"
#define META_NEW "meta.new"

/* ---- meta ---- */

struct sandbox_meta {
    char text[sizeof(((struct sandbox_request *)0)->hash) + NAME_MAX];
};

/* False: there is no such link. */
static bool sandbox_files_read_meta(int dir, const char *name, struct sandbox_meta *ret)
{
    ssize_t n = readlinkat(dir, name, ret->text, sizeof(ret->text) - 1);

    ret->text[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

static bool sandbox_files_meta_is(const struct sandbox_meta *m, const char *hash)
{
    size_t len = strlen(hash);

    return strncmp(m->text, hash, len) == 0 && m->text[len] == '/';
}

static bool sandbox_files_have_hash(int dir, const char *name, const char *hash)
{
    struct sandbox_meta m;

    return sandbox_files_read_meta(dir, name, &m) && sandbox_files_meta_is(&m, hash);
}

/* Replaces a link in one step. */
static int sandbox_files_put_link(int dir, const char *name, const char *text, struct err *err)
{
    if (symlinkat(text, dir, name) == 0)
        return 0;
    if (errno != EEXIST || (unlinkat(dir, META_NEW, 0) < 0 && errno != ENOENT) ||
        symlinkat(text, dir, META_NEW) < 0 || renameat(dir, META_NEW, dir, name) < 0)
        return err_sys(err, errno, "write link '%s' of a sandbox", name);
    return 0;
}

static int sandbox_files_write_spec(int dir, const struct sandbox_request *req, struct err *err)
{
    if (req->spec_text &&
        file_replace(dir, "spec", req->spec_text, strlen(req->spec_text), 0600, false, err) < 0)
        return err_wrap(err, "record the spec of sandbox '%s'", req->id);
    return 0;
}

static int sandbox_files_write_meta(int dir, const struct sandbox_request *req, struct err *err)
{
    struct sandbox_meta m;
    int r = sandbox_files_write_spec(dir, req, err);

    if (r < 0)
        return r;
    snprintf(m.text, sizeof(m.text), "%s/%s", req->hash, req->name);
    return sandbox_files_put_link(dir, META, m.text, err);
}

/* ---- creating ---- */

/* Each sandbox of a file system with project quotas gets a project; launch.c sets its limit. */
static int sandbox_files_make_disk(struct native_engine *n, const struct sandbox_request *req,
                                   int dir, const struct deadline *by, struct err *err)
{
    uint64_t size = req->spec.disk ? req->spec.disk : n->disk_images ? n->disk_budget : 0;
    _cleanup_free_ char *folder = NULL;

    if (n->quota)
        return quota_assign(dir, err);
    if (!size || sandbox_spec_is_confined(&req->spec)) /* it cannot mount an image */
        return 0;
    folder = xasprintf("%s/sandboxes/%s", n->state_dir, req->id);
    return disk_make(folder, size, by, err);
}

/* Removes what an earlier re-creation has kept: the present state is the one that counts. */
static int sandbox_files_drop_kept(struct native_engine *n, int dir, struct err *err)
{
    int r = delete_queue_add(n->delete_queue, dir, OVERLAY_ROOT_OLD, err);

    if (r < 0)
        return r;
    if (unlinkat(dir, META_OLD, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove link '%s' of a sandbox", META_OLD);
    return 0;
}

static int sandbox_files_keep_root(struct native_engine *n, int dir, struct err *err)
{
    struct sandbox_meta m;
    int r;

    r = sandbox_files_drop_kept(n, dir, err);
    if (r < 0)
        return r;
    if (!sandbox_files_read_meta(dir, META, &m)) /* it was never whole: nothing to go back to */
        return delete_queue_add(n->delete_queue, dir, "root", err);
    r = sandbox_files_put_link(dir, META_OLD, m.text, err);
    if (r < 0)
        return r;
    r = overlay_renew_begin(dir, "cache", err);
    if (r < 0)
        return r;
    return overlay_keep(dir, err);
}

/* A new root for another spec; /home/agent and /cache stay. */
static int sandbox_files_renew(struct native_engine *n, const struct sandbox_request *req,
                               const struct deadline *by, struct err *err)
{
    _cleanup_close_ int dir = -1;
    int r;

    r = dir_open(n->sandboxes, req->id, &dir, err);
    if (r < 0)
        return r;
    /* A daemon may have been killed before this. Later there are files that it would not hold. */
    r = faccessat(dir, META, F_OK, AT_SYMLINK_NOFOLLOW) < 0
            ? sandbox_files_make_disk(n, req, dir, by, err)
            : 0;
    if (r < 0)
        return r;
    r = native_image_own(n, req, dir, by, err);
    if (r < 0)
        return r;
    r = native_confined_make(n, req, dir, err);
    if (r < 0)
        return r;
    if (sandbox_files_have_hash(dir, META, req->hash))
        return 0;
    r = req->keep ? sandbox_files_keep_root(n, dir, err) : 0;
    if (r < 0)
        return r;
    r = overlay_renew_begin(dir, "cache", err);
    if (r < 0)
        return r;
    r = delete_queue_add(n->delete_queue, dir, "root", err);
    if (r < 0)
        return r;
    r = overlay_renew_end(dir, err);
    if (r < 0)
        return r;
    return sandbox_files_write_meta(dir, req, err);
}

static int sandbox_files_make_new(struct native_engine *n, const struct sandbox_request *req,
                                  const struct deadline *by, struct err *err)
{
    _cleanup_close_ int dir = -1;
    int r;

    r = dir_open(n->sandboxes, req->id, &dir, err);
    if (r < 0)
        return r;
    r = sandbox_files_make_disk(n, req, dir, by, err);
    if (r < 0)
        return r;
    r = native_image_own(n, req, dir, by, err);
    if (r < 0)
        return r;
    r = native_confined_make(n, req, dir, err);
    if (r < 0)
        return r;
    return sandbox_files_write_meta(dir, req, err);
}

int native_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err)
{
    struct native_engine *n = native_of(e);
    int r;

    r = req->fresh ? native_verify(e, req, by, err) : 0;
    if (r < 0)
        return r;
    /* Always first: a daemon may have been killed between the two folders. */
    r = prewarmed_folder(n->prewarmed, PREWARMED_EXECS, n->execs, req->id);
    if (r < 0 && r != -EEXIST)
        return err_sys(err, -r, "make journal folder of sandbox '%s'", req->name);
    r = prewarmed_folder(n->prewarmed, PREWARMED_SANDBOX, n->sandboxes, req->id);
    if (r == -EEXIST)
        return sandbox_files_renew(n, req, by, err);
    if (r < 0)
        return err_sys(err, -r, "make folder of sandbox '%s'", req->name);
    r = sandbox_files_make_new(n, req, by, err);
    if (r < 0) {
        rmtree(n->sandboxes, req->id, NULL);
        rmtree(n->execs, req->id, NULL);
    }
    return r;
}

/* ---- checking before anything changes ---- */

int native_check_mounts(const struct native_engine *n, const struct sandbox_spec *spec,
                        struct mount_source *ret, struct err *err)
{
    const char *const own[] = {n->state_dir, n->run_dir, NULL};

    for (size_t i = 0; i < spec->n_mounts; i++) {
        int r = mount_source_check(spec->mounts[i].source, own, &ret[i], err);

        if (r < 0)
            return r;
    }
    return 0;
}

int native_verify(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err)
{
    const struct sandbox_spec *spec = &req->spec;
    _cleanup_free_ struct mount_source *sources = NULL;
    int r;

    (void)by; /* nothing here waits for another process */
    sources = spec->n_mounts ? xcalloc(spec->n_mounts, sizeof(*sources)) : NULL;
    r = native_check_mounts(native_of(e), spec, sources, err);
    if (r < 0)
        return r;
    return native_image_check_user(native_of(e), spec, err);
}

/* ---- after a re-creation ---- */

/* Each step may have been done before. */
static int sandbox_files_put_back(struct native_engine *n, int dir, struct err *err)
{
    int r = overlay_keep_undo_begin(dir, "cache", err);

    if (r < 0)
        return r;
    if (r > 0) { /* the old root is in root.old */
        r = delete_queue_add(n->delete_queue, dir, "root", err);
        if (r < 0)
            return r;
        r = overlay_keep_undo_end(dir, err);
        if (r < 0)
            return r;
    }
    r = delete_queue_add(n->delete_queue, dir, OVERLAY_ROOT_NEXT, err);
    if (r < 0)
        return r;
    return renameat(dir, META_OLD, dir, META) < 0
               ? err_sys(err, errno, "put link '%s' of a sandbox back", META_OLD)
               : 0;
}

/* Before meta names the new spec, its root is not whole. */
static bool sandbox_files_must_go_back(int dir, const char *hash)
{
    struct sandbox_meta now, old;

    if (!sandbox_files_read_meta(dir, META_OLD, &old))
        return false;
    return sandbox_files_meta_is(&old, hash) || !sandbox_files_read_meta(dir, META, &now) ||
           STREQ(now.text, old.text);
}

static int sandbox_files_settle(struct native_engine *n, const struct sandbox_request *req, int dir,
                                struct err *err)
{
    int r;

    r = sandbox_files_must_go_back(dir, req->hash) ? sandbox_files_put_back(n, dir, err)
                                                   : sandbox_files_drop_kept(n, dir, err);
    if (r < 0)
        return r;
    if (!sandbox_files_have_hash(dir, META, req->hash))
        return 0;
    r = native_image_drop_copies(n, &req->spec, dir, err);
    return r < 0 ? r : sandbox_files_write_spec(dir, req, err);
}

int native_settle(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct engine_sandbox *ret, struct err *err)
{
    struct native_engine *n = native_of(e);
    _cleanup_close_ int dir = openat(n->sandboxes, req->id, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r;

    (void)by;
    if (dir < 0 && errno == ENOENT)
        return 0;
    if (dir < 0)
        return err_sys(err, errno, "open the folder of sandbox '%s'", req->id);
    r = sandbox_files_settle(n, req, dir, err);
    if (r < 0)
        return err_wrap(err, "end the re-creation of sandbox '%s'", req->name);
    if (sandbox_files_have_hash(dir, META, req->hash))
        memcpy(ret->hash, req->hash, sizeof(ret->hash));
    return 0;
}

bool native_is_kept(const struct native_engine *n, const char *id)
{
    _cleanup_free_ char *path = xasprintf("%s/" META_OLD, id);

    return faccessat(n->sandboxes, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}
