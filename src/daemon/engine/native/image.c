#include "daemon/engine/native/image.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/engine-check.h"
#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/program.h"
#include "daemon/engine/native/transfer.h"
#include "daemon/engine/sandbox-request.h"
#include "daemon/engine/sandbox-spec.h"
#include "image/store/accounts.h"
#include "image/store/images.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/quota.h"
#include "proto/image-program.h"

enum { TRANSFERS_MAX = 2 };

#define OWN_PREFIX "image-" /* own copy of the layers, with isolation `strict` */
#define OWN_NEW "image.new"

#define DEFAULT_USER "agent" /* as in daemon/core/sandbox/spec.c */
#define DEFAULT_WORKDIR "/home/agent"
#define PLAIN_USER "1000"

_Static_assert((int)PLAN_LAYERS_MAX >= (int)IMAGES_LAYERS_MAX,
               "whatever is in the store can be mounted");

char *native_store_path(const struct native_engine *n)
{
    return xasprintf("%s/images/store", n->state_dir);
}

char *native_store_ids(const struct native_engine *n)
{
    return n->subids.uid ? xasprintf("sub:%u:%u", n->subids.uid, n->subids.gid)
                         : xstrdup(n->ranges ? "range" : "own");
}

static int image_open_store(const struct native_engine *n, struct images *ret, struct err *err)
{
    _cleanup_free_ char *path = native_store_path(n);

    return images_open(path, ret, err);
}

static bool image_is_host(const struct sandbox_spec *spec)
{
    return !spec->image || STREQ(spec->image, engine_native_ops.default_image);
}

/* The name of a strict sandbox's own copy of its image; NULL: it has none. */
static char *image_own_name(const struct sandbox_spec *spec)
{
    return spec->isolation == SPEC_ISOLATION_STRICT && spec->image_digest
               ? xasprintf(OWN_PREFIX "%s", digest_hex(spec->image_digest))
               : NULL;
}

static int image_check_isolation(const struct sandbox_spec *spec, bool on_host, struct err *err)
{
    if (spec->isolation != SPEC_ISOLATION_STRICT || !on_host)
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "isolation 'strict' is not possible with %s 'host' (it is this machine's own /usr)",
            image_is_host(spec) ? "image" : "an image built on");
    return err_hint(err, "Import an image with 'ripcord image import' and name it with --image.");
}

int native_image_check(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    (void)e;
    return image_check_isolation(spec, image_is_host(spec), err);
}

/* Before anything is made: the copy for `strict` would be useless. */
static int image_check_resolved(const struct images *s, const char *id,
                                const struct sandbox_spec *spec, struct err *err)
{
    _cleanup_json_ json_t *record = NULL;
    int r;

    if (spec->isolation != SPEC_ISOLATION_STRICT)
        return 0;
    r = images_read(s, id, &record, err);
    if (r < 0)
        return err_wrap(err, "image '%s'", spec->image);
    r = image_check_isolation(spec, images_is_on_host(record), err);
    return r < 0 ? err_wrap(err, "image '%s'", spec->image) : 0;
}

int native_resolve(struct engine *e, const struct sandbox_spec *spec, const struct deadline *by,
                   char **ret, struct err *err)
{
    _cleanup_images_ struct images s = IMAGES_INIT;
    char id[DIGEST_MAX];
    int r;

    (void)by;
    r = image_open_store(native_of(e), &s, err);
    if (r < 0)
        return r;
    r = images_resolve(&s, spec->image, id, err);
    if (r < 0)
        return r;
    r = image_check_resolved(&s, id, spec, err);
    if (r < 0)
        return r;
    *ret = xstrdup(id);
    return 0;
}

/* ---- the plan ---- */

const char *native_host_generation(const struct native_engine *n)
{
    return strrchr(n->lower, '/') + 1;
}

/* With image `host` below, the names start at the folder that holds both `host` and the store. */
int native_layers(const struct native_engine *n, char *const *layers, char ***ret, char **ret_dir,
                  struct err *err)
{
    bool on_host = images_begin_with_host(layers);
    _cleanup_strv_ char **stack = images_stack(layers + on_host), **names = NULL;

    for (char **digest = stack; digest && *digest; digest++) {
        if (!digest_is_valid(*digest))
            return err_set(err, ERR_SYSTEM, "the record of the image is damaged");
        strv_push(&names,
                  xasprintf("%s%s/fs", on_host ? "store/layers/" : "", digest_hex(*digest)));
    }
    if (on_host)
        strv_push(&names, xasprintf("host/%s", native_host_generation(n)));
    *ret = TAKE_PTR(names);
    *ret_dir = xasprintf("%s/images%s", n->state_dir, on_host ? "" : "/store/layers");
    return 0;
}

static int image_plan_layers(const struct native_engine *n, const json_t *record, struct plan *p,
                             struct err *err)
{
    _cleanup_strv_ char **layers = NULL;
    int r = images_layers(record, &layers, err);

    if (r < 0)
        return r;
    if (!layers)
        return err_set(err, ERR_UNSUPPORTED, "the image has no layers");
    r = native_layers(n, layers, &p->layers, &p->lower_dir, err);
    p->n_layers = strv_len(p->layers);
    return r;
}

/* Puts the variables of the image before *env. Invalid ones are left out. */
static int image_plan_env(const json_t *record, char ***env, struct err *err)
{
    _cleanup_strv_ char **image = NULL;
    char **all = NULL;
    int r = json_read_strv(json_object_get(record, "env"), "env", &image, err);

    if (r < 0)
        return r;
    for (char **v = image; v && *v; v++)
        if (parse_env(*v, NULL) >= 0)
            strv_add(&all, *v);
    for (char **v = *env; v && *v; v++)
        strv_add(&all, *v);
    strv_free(*env);
    *env = all;
    return 0;
}

/* "name", "1000" and "1000:1000" stay as they are; "name:group" becomes the name. */
static char *image_user(const json_t *record)
{
    const char *user = json_string_value(json_object_get(record, "user"));
    _cleanup_free_ char *name = NULL;

    if (json_is_true(json_object_get(record, "agent")))
        return xstrdup(DEFAULT_USER);
    if (user && parse_user(user, NULL) >= 0)
        return xstrdup(user);
    name = user ? xstrndup(user, strcspn(user, ":")) : NULL;
    return name && parse_user(name, NULL) >= 0 ? TAKE_PTR(name) : xstrdup(PLAIN_USER);
}

static char *image_workdir(const json_t *record)
{
    const char *dir = json_string_value(json_object_get(record, "workdir"));

    return xstrdup(dir && dir[0] == '/' && dir[1] && !strstr(dir, "/..") ? dir : DEFAULT_WORKDIR);
}

/* The store may hold images of other architectures, to push them elsewhere. */
static int image_check_machine(const json_t *record, struct err *err)
{
    const char *arch = json_string_value(json_object_get(record, "architecture"));

    if (!arch || STREQ(arch, IMAGES_ARCHITECTURE))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "it is for %.40s, this machine is %s", arch,
                   IMAGES_ARCHITECTURE);
}

/* Uses the sandbox's own copy of the layers. */
static void image_plan_own(const struct native_engine *n, const struct sandbox_request *req,
                           struct plan *p)
{
    _cleanup_free_ char *own = image_own_name(&req->spec);

    if (!own)
        return;
    free(p->lower_dir);
    p->lower_dir = xasprintf("%s/sandboxes/%s/%s", n->state_dir, req->id, own);
}

static int image_plan_stored(struct native_engine *n, const struct sandbox_request *req,
                             struct plan *p, char ***env, struct err *err)
{
    const struct sandbox_spec *spec = &req->spec;
    _cleanup_images_ struct images s = IMAGES_INIT;
    _cleanup_json_ json_t *record = NULL;
    int r;

    if (!spec->image_digest)
        return err_set(err, ERR_INVALID, "its digest is not known");
    r = image_open_store(n, &s, err);
    if (r < 0)
        return r;
    r = images_read(&s, spec->image_digest, &record, err);
    if (r < 0)
        return r;
    r = image_check_machine(record, err);
    if (r < 0)
        return r;
    r = image_check_isolation(spec, images_is_on_host(record), err);
    if (r < 0)
        return r;
    r = image_plan_layers(n, record, p, err);
    if (r < 0)
        return r;
    r = image_plan_env(record, env, err);
    if (r < 0)
        return r;
    p->image = images_is_on_host(record) ? PLAN_IMAGE_HOST : PLAN_IMAGE_ROOTFS;
    image_plan_own(n, req, p);
    p->user = STREQ(spec->user, DEFAULT_USER) ? image_user(record) : xstrdup(spec->user);
    p->workdir =
        STREQ(spec->workdir, DEFAULT_WORKDIR) ? image_workdir(record) : xstrdup(spec->workdir);
    return 0;
}

int native_image_plan(struct native_engine *n, const struct sandbox_request *req, struct plan *p,
                      char ***env, struct err *err)
{
    const struct sandbox_spec *spec = &req->spec;

    if (!image_is_host(spec)) {
        int r = image_plan_stored(n, req, p, env, err);

        return r < 0 ? err_wrap(err, "image '%s'", spec->image) : 0;
    }
    p->image = PLAN_IMAGE_HOST;
    p->lower_dir = xstrdup(n->lower);
    p->user = xstrdup(spec->user);
    p->workdir = xstrdup(spec->workdir);
    return 0;
}

/* ---- ripcord-image ---- */

int image_tool_start(const struct native_engine *n, const struct image_tool *t, struct program *ret,
                     struct err *err)
{
    _cleanup_free_ char *store = native_store_path(n), *ids = native_store_ids(n);
    char max[24];
    const char *const argv[] = {"ripcord-image", store, ids, max, t->verb, t->arg, t->more, NULL};
    const struct process_fd fds[] = {{t->in, STDIN_FILENO}, {t->data, IMAGE_FD_OUT}};

    snprintf(max, sizeof(max), "%llu", (unsigned long long)n->image_max);
    return program_start(n->libexec_dir, argv, NULL, fds, ARRAY_SIZE(fds), ret, err);
}

static int image_run_tool(const struct native_engine *n, const struct image_tool *t,
                          const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_program_ struct program p = PROGRAM_INIT;
    int r = image_tool_start(n, t, &p, err);

    return r < 0 ? r : program_answer(&p, by, ret, err);
}

/* ---- a sandbox's own copy ---- */

/* Deletes the copies of an earlier spec, and unfinished ones of a daemon that was killed. */
static int image_delete_old_copies(struct native_engine *n, int sandbox, const char *own,
                                   struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    _cleanup_strv_ char **names = NULL;
    int fd = openat(sandbox, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        r = err_sys(err, errno, "read the folder of a sandbox");
        fd_close(fd);
        return r;
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (STREQ(e->d_name, OWN_NEW) || (strncmp(e->d_name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0 &&
                                          !(own && STREQ(e->d_name, own))))
            strv_add(&names, e->d_name);
    for (char **name = names; name && *name; name++) {
        r = delete_queue_add(n->delete_queue, sandbox, *name, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int image_copy_layers(struct native_engine *n, const struct sandbox_request *req,
                             int sandbox, const struct deadline *by, struct err *err)
{
    struct image_tool t = {.verb = req->ephemeral ? "copy-ephemeral" : "copy",
                           .arg = req->spec.image_digest,
                           .data = -1};
    _cleanup_close_ int dir = -1;
    _cleanup_free_ char *answer = NULL;
    int r;

    if (mkdirat(sandbox, OWN_NEW, 0700) < 0)
        return err_sys(err, errno, "make folder '%s' of a sandbox", OWN_NEW);
    r = dir_open(sandbox, OWN_NEW, &dir, err);
    if (r < 0)
        return r;
    r = n->quota ? quota_exempt(dir, err) : 0;
    if (r < 0)
        return r;
    t.in = dir;
    r = image_run_tool(n, &t, by, &answer, err);
    if (r < 0)
        return r;
    return n->quota ? quota_join(dir, sandbox, err) : 0;
}

int native_image_own(struct native_engine *n, const struct sandbox_request *req, int sandbox,
                     const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *own = image_own_name(&req->spec);
    int r = 0;

    if (req->keep) /* only the rest of a daemon that was killed: native_settle() does the others */
        r = delete_queue_add(n->delete_queue, sandbox, OWN_NEW, err);
    else if (!req->fresh)
        r = image_delete_old_copies(n, sandbox, own, err);
    if (r < 0 || !own || faccessat(sandbox, own, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return r;
    r = image_copy_layers(n, req, sandbox, by, err);
    if (r >= 0 && renameat(sandbox, OWN_NEW, sandbox, own) < 0)
        r = err_sys(err, errno, "put the copy of image '%s' in its place", req->spec.image);
    if (r < 0)
        delete_queue_add(n->delete_queue, sandbox, OWN_NEW, NULL);
    return r < 0 ? err_wrap(err, "copy image '%s' for isolation 'strict'", req->spec.image) : 0;
}

int native_image_drop_copies(struct native_engine *n, const struct sandbox_spec *spec, int sandbox,
                             struct err *err)
{
    _cleanup_free_ char *own = image_own_name(spec);

    return image_delete_old_copies(n, sandbox, own, err);
}

/* ---- users ---- */

static int image_find_user(struct native_engine *n, const struct sandbox_spec *spec,
                           enum account_found *ret, struct err *err)
{
    _cleanup_images_ struct images s = IMAGES_INIT;
    _cleanup_json_ json_t *record = NULL;
    _cleanup_close_ int fs = -1;
    int r;

    if (image_is_host(spec)) {
        r = dir_open(AT_FDCWD, n->lower, &fs, err);
        *ret = r < 0 ? ACCOUNT_UNKNOWN : accounts_find_in(fs, spec->user);
        return r;
    }
    r = image_open_store(n, &s, err);
    if (r < 0)
        return r;
    r = images_read(&s, spec->image_digest, &record, err);
    if (r < 0)
        return err_wrap(err, "image '%s'", spec->image);
    *ret = accounts_find(&s, record, spec->user);
    return 0;
}

int native_image_check_user(struct native_engine *n, const struct sandbox_spec *spec,
                            struct err *err)
{
    enum account_found found = ACCOUNT_UNKNOWN;
    int r;

    /* A build step has layers instead of an image: the shim looks the user up in them. */
    if (!spec->image || !engine_check_needs_account(spec))
        return 0;
    r = image_find_user(n, spec, &found, err);
    return r < 0 || found != ACCOUNT_MISSING ? r : engine_check_no_account(spec, err);
}

/* ---- operations ---- */

/* Only a few at once: each takes a worker, and starts of sandboxes need workers too. */
int image_transfer_begin(struct native_engine *n, struct err *err)
{
    bool full;

    pthread_mutex_lock(&n->lock);
    full = n->transfers >= TRANSFERS_MAX;
    n->transfers += !full;
    pthread_mutex_unlock(&n->lock);
    return full ? err_set(err, ERR_LIMIT, "%d image transfers are already running", TRANSFERS_MAX)
                : 0;
}

void image_transfer_end(struct native_engine *n)
{
    pthread_mutex_lock(&n->lock);
    n->transfers--;
    pthread_mutex_unlock(&n->lock);
}

static int image_run_transfer(struct native_engine *n, const struct image_tool *t,
                              const struct deadline *by, char **ret, struct err *err)
{
    int r = image_transfer_begin(n, err);

    if (r < 0)
        return r;
    r = image_run_tool(n, t, by, ret, err);
    image_transfer_end(n);
    return r;
}

/* ripcord-image reads the digests of the images in use from its stdin. */
static int image_run_with_used(struct native_engine *n, const char *verb, const char *name,
                               char *const *in_use, const struct deadline *by, char **ret,
                               struct err *err)
{
    _cleanup_free_ char *used = strv_join(in_use, "\n");
    _cleanup_close_ int in = -1;
    struct image_tool t = {.verb = verb, .arg = name, .data = -1};
    int r = memfd_sealed("images-in-use", used, strlen(used), &in, err);

    if (r < 0)
        return r;
    t.in = in;
    return image_run_tool(n, &t, by, ret, err);
}

static int image_show_one(const struct images *s, json_t *image, char **ret, struct err *err)
{
    json_t *history;
    int r = images_history(s, image, &history, err);

    if (r < 0)
        return r;
    json_object_set_new(image, "history", history);
    *ret = json_to_text(image, false);
    return 0;
}

/* `name` NULL: all images. */
static int image_show_images(struct native_engine *n, const char *name, char **ret, struct err *err)
{
    _cleanup_images_ struct images s = IMAGES_INIT;
    _cleanup_json_ json_t *list = NULL;
    char id[DIGEST_MAX];
    json_t *image;
    size_t i;
    int r;

    r = image_open_store(n, &s, err);
    if (r < 0)
        return r;
    if (name)
        r = images_resolve(&s, name, id, err);
    if (r < 0)
        return r;
    r = images_list(&s, &list, err);
    if (r < 0)
        return r;
    if (!name) {
        *ret = json_to_text(list, false);
        return 0;
    }
    json_array_foreach (json_object_get(list, "images"), i, image)
        if (STREQ(json_string_value(json_object_get(image, "id")), id))
            return image_show_one(&s, image, ret, err);
    return err_set(err, ERR_NOT_FOUND, "image '%s' is no longer in the store", id);
}

int native_image(struct engine *e, const struct image_op *req, const struct deadline *by,
                 char **ret, struct err *err)
{
    struct native_engine *n = native_of(e);
    struct image_tool t;

    switch (req->verb) {
    case IMAGE_LIST:
        return image_show_images(n, NULL, ret, err);
    case IMAGE_SHOW:
        return image_show_images(n, req->show.name, ret, err);
    case IMAGE_IMPORT:
        t = (struct image_tool){
            .verb = "import", .arg = req->import.name, .in = req->import.archive, .data = -1};
        return image_run_transfer(n, &t, by, ret, err);
    case IMAGE_EXPORT:
        t = (struct image_tool){"export", req->export.name, req->export.format, n->devnull,
                                req->export.archive};
        return image_run_transfer(n, &t, by, ret, err);
    case IMAGE_PULL:
        return native_pull(n, &req->pull, by, ret, err);
    case IMAGE_PUSH:
        return native_push(n, &req->push, by, ret, err);
    case IMAGE_REMOVE:
        return image_run_with_used(n, "rm", req->remove.name, req->remove.used, by, ret, err);
    case IMAGE_PRUNE:
        return image_run_with_used(n, "prune", NULL, req->prune.used, by, ret, err);
    }
    return err_set(err, ERR_UNSUPPORTED, "images: unknown request %d", (int)req->verb);
}

/* ---- cache mounts of builds ---- */

int native_cache_mounts(struct engine *e, const struct cache_mount_op *req,
                        const struct deadline *by, char **ret, struct err *err)
{
    struct native_engine *n = native_of(e);
    struct image_tool t = {.in = n->devnull, .data = -1};
    _cleanup_free_ char *keep = NULL, *unused = NULL;

    switch (req->verb) {
    case CACHE_MOUNT_LIST:
        t.verb = "mounts";
        break;
    case CACHE_MOUNT_REMOVE:
        t.verb = "mounts-rm";
        t.arg = req->remove.id;
        break;
    case CACHE_MOUNT_TRIM:
        keep = xasprintf("%llu", (unsigned long long)req->trim.keep);
        unused = xasprintf("%llu", (unsigned long long)req->trim.unused);
        t.verb = "mounts-trim";
        t.arg = keep;
        t.more = unused;
        break;
    }
    return image_run_tool(n, &t, by, ret, err);
}
