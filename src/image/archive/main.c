#include "image/archive/main.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/archive/confined-ids.h"
#include "image/archive/confined.h"
#include "image/archive/export.h"
#include "image/archive/import.h"
#include "image/archive/layer-copy.h"
#include "image/archive/mount-cache.h"
#include "image/store/images.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/locale.h"
#include "lib/os/static-program.h"
#include "proto/image-program.h"

enum { USED_MAX = 16 << 20 };

struct image_request {
    struct images store;
    uint64_t max; /* bytes of an image */
    struct confined_ids ids;
    const char *arg, *more; /* or NULL */
};

static void image_request_done(struct image_request *q)
{
    images_done(&q->store);
}

static int archive_remove_tree(void *arg, int dirfd, const char *name, struct err *err)
{
    return confined_remove(arg, dirfd, name, err);
}

static int archive_read_used(char ***ret, struct err *err)
{
    _cleanup_free_ char *text = xmalloc(USED_MAX + 1);
    ssize_t n = fd_read_full(STDIN_FILENO, text, USED_MAX);

    if (n < 0 || n == USED_MAX)
        return err_sys(err, n < 0 ? (int)-n : E2BIG, "read the list of images in use");
    text[n] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            strv_add(ret, line);
    return 0;
}

static int archive_collect(struct image_request *q, char *const *used, bool keep_cache,
                           json_t **ret, struct err *err)
{
    struct images_collected n = {0};
    int r = images_lock(&q->store, true, false, err);

    if (r < 0)
        return r;
    /* Without the lock an import is running. The next collection removes what is left. */
    if (r > 0) {
        r = images_collect(&q->store, used, keep_cache, archive_remove_tree, &q->ids, &n, err);
        if (r < 0)
            return r;
    }
    *ret = json_pack("{s:I, s:I, s:I}", "images", (json_int_t)n.images, "layers",
                     (json_int_t)n.layers, "bytes", (json_int_t)n.bytes);
    return 0;
}

/* ---- commands ---- */

static int archive_run_import(struct image_request *q, json_t **ret, struct err *err)
{
    int r = images_lock(&q->store, false, true, err);

    if (r < 0)
        return r;
    return import_archive(&q->store, &q->ids, STDIN_FILENO, q->max, q->arg, q->more, ret, err);
}

static int archive_run_export(struct image_request *q, json_t **ret, struct err *err)
{
    enum export_form form;
    int r = export_form_parse(q->more, &form, err);

    if (r < 0)
        return r;
    r = images_lock(&q->store, false, true, err);
    if (r < 0)
        return r;
    return export_image(&q->store, &q->ids, q->arg, form, IMAGE_FD_OUT, ret, err);
}

static int archive_run_prune(struct image_request *q, json_t **ret, struct err *err)
{
    _cleanup_strv_ char **used = NULL;
    int r = archive_read_used(&used, err);

    if (r < 0)
        return r;
    return archive_collect(q, used, false, ret, err);
}

static char **archive_names_of(const json_t *refs, const char *id)
{
    char **names = NULL;
    const char *name;
    json_t *of;

    json_object_foreach ((json_t *)refs, name, of)
        if (json_is_string(of) && STREQ(json_string_value(of), id))
            strv_add(&names, name);
    return names;
}

/* A request by name removes that name, a request by digest all names. An image in use keeps its
 * last name. */
static int archive_untag(struct image_request *q, const char *id, char *const *used,
                         struct err *err)
{
    _cleanup_json_ json_t *refs = NULL;
    _cleanup_strv_ char **names = NULL;
    _cleanup_free_ char *ref = NULL;
    int r = images_refs(&q->store, &refs, err);

    if (r < 0)
        return r;
    names = archive_names_of(refs, id);
    ref = images_ref(refs, q->arg);
    if (ref && strv_len(names) > 1)
        return images_untag(&q->store, ref, err);
    if (strv_contains(used, id)) {
        err_set(err, ERR_CONFLICT, "image '%.200s' is in use", q->arg);
        return err_hint(err, "Remove the sandboxes that use it first; `ripcord ls` shows them.");
    }
    for (char **n = names; n && *n; n++) {
        r = images_untag(&q->store, *n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int archive_run_rm(struct image_request *q, json_t **ret, struct err *err)
{
    _cleanup_strv_ char **used = NULL;
    char id[DIGEST_MAX];
    int r;

    r = archive_read_used(&used, err);
    if (r < 0)
        return r;
    r = images_resolve(&q->store, q->arg, id, err);
    if (r < 0)
        return r;
    r = archive_untag(q, id, used, err);
    if (r < 0)
        return r;
    r = archive_collect(q, used, true, ret, err);
    if (r < 0)
        return r;
    json_object_set_new(*ret, "id", json_string(id));
    return 0;
}

/* Copies the layers to <hex>/fs in the folder that is stdin. */
static int archive_copy(struct image_request *q, bool sync, json_t **ret, struct err *err)
{
    struct layer_copy_stats n = {0};
    int r = images_lock(&q->store, false, true, err);

    if (r < 0)
        return r;
    r = layer_copy_image(&q->store, &q->ids, q->arg, STDIN_FILENO, &n, err);
    if (r < 0)
        return r;
    /* A copy with its final name counts as complete, also after a crash of the machine. */
    if (sync && syncfs(STDIN_FILENO) < 0)
        return err_sys(err, errno, "write the copy to the disk");
    *ret = json_pack("{s:I, s:I}", "files", (json_int_t)n.files, "bytes", (json_int_t)n.bytes);
    return 0;
}

static int archive_run_copy(struct image_request *q, json_t **ret, struct err *err)
{
    return archive_copy(q, true, ret, err);
}

/* For a sandbox that does not survive a crash of the machine: without a sync. */
static int archive_run_copy_ephemeral(struct image_request *q, json_t **ret, struct err *err)
{
    return archive_copy(q, false, ret, err);
}

/* ---- cache mounts ---- */

static int archive_run_mounts(struct image_request *q, json_t **ret, struct err *err)
{
    return mount_cache_list(&q->store, &q->ids, ret, err);
}

static int archive_run_mounts_rm(struct image_request *q, json_t **ret, struct err *err)
{
    int r = images_lock(&q->store, false, true, err);

    if (r < 0)
        return r;
    return mount_cache_remove(&q->store, &q->ids, q->arg, ret, err);
}

/* BYTES SECONDS */
static int archive_run_mounts_trim(struct image_request *q, json_t **ret, struct err *err)
{
    uint64_t keep, unused = 0;
    int r = parse_u64(q->arg, 0, UINT64_MAX, &keep, err);

    if (r < 0)
        return r;
    r = parse_u64(q->more, 0, UINT32_MAX, &unused, err);
    if (r < 0)
        return r;
    r = images_lock(&q->store, false, true, err);
    if (r < 0)
        return r;
    return mount_cache_trim(&q->store, &q->ids, keep, unused, ret, err);
}

static const struct {
    const char *name;
    int min, max;
    int (*run)(struct image_request *q, json_t **ret, struct err *err);
} commands[] = {
    {"import", 0, 2, archive_run_import},
    {"export", 2, 2, archive_run_export},
    {"rm", 1, 1, archive_run_rm},
    {"prune", 0, 0, archive_run_prune},
    {"copy", 1, 1, archive_run_copy},
    {"copy-ephemeral", 1, 1, archive_run_copy_ephemeral},
    {"mounts", 0, 0, archive_run_mounts},
    {"mounts-rm", 1, 1, archive_run_mounts_rm},
    {"mounts-trim", 2, 2, archive_run_mounts_trim},
};

static int archive_run(int argc, char **argv, json_t **ret, struct err *err)
{
    _cleanup_(image_request_done) struct image_request q = {
        .store = IMAGES_INIT, .arg = argc > 5 ? argv[5] : NULL, .more = argc > 6 ? argv[6] : NULL};
    int r;

    if (argc < 5)
        return err_set(err, ERR_INVALID, "ripcord-image is internal: ripcordd starts it");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (!STREQ(commands[i].name, argv[4]) || argc - 5 < commands[i].min ||
            argc - 5 > commands[i].max)
            continue;
        r = confined_ids_parse(argv[2], &q.ids, err);
        if (r < 0)
            return r;
        r = parse_u64(argv[3], 0, UINT64_MAX, &q.max, err);
        if (r < 0)
            return r;
        r = images_open(argv[1], &q.store, err);
        if (r < 0)
            return r;
        return commands[i].run(&q, ret, err);
    }
    return err_set(err, ERR_INVALID,
                   "ripcord-image: unknown command '%s' or wrong number of arguments", argv[4]);
}

int image_main(int argc, char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    int r;

    static_program_init();
    json_need_memory();
    signal(SIGPIPE, SIG_IGN);
    umask(022); /* folders without an entry in the archive are readable for all users */
    r = locale_use_utf8(&err);
    if (r >= 0)
        r = archive_run(argc, argv, &doc, &err);
    if (r < 0)
        doc = json_from_err(&err);
    text = json_to_text(doc, false);
    if (printf("%s\n", text) < 0 || fflush(stdout) != 0)
        return 1;
    return r < 0;
}
