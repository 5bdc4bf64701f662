#include "image/archive/import.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "image/archive/layer-import.h"
#include "image/archive/tar-index.h"
#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "image/store/accounts.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { INDEX_DEPTH_MAX = 3, TAR_END = 1024 };

struct import {
    struct images *s;
    const struct confined_ids *ids;
    uint64_t max;            /* bytes of the spool, and of the files of an image */
    const char *name;        /* the requested name, or NULL */
    const char *platform;    /* as in image/oci/manifest.h */
    int spool;               /* the uncompressed archive */
    uint64_t size;           /* of the spool */
    char digest[DIGEST_MAX]; /* of the spool */
    struct tar_index index;
    json_t *images; /* owned: a report for each imported image */
};

/* One image: its documents, and the places of its layers in the spool. */
struct import_incoming {
    const char *config;
    size_t config_len;
    char id[DIGEST_MAX];
    const char *manifest; /* digest, or NULL */
    char *const *names;
    struct layer_import_in *layers;
    size_t n;
};

static int import_limit_hint(const struct import *im, int r, struct err *err)
{
    if (r != -ERR_LIMIT)
        return r;
    return err_hint(err,
                    "An image may have %llu MiB. Raise 'image.max_size' in the configuration "
                    "if you trust this one.",
                    (unsigned long long)(im->max >> 20));
}

/* ---- one image ---- */

static int import_layers(struct import *im, const struct import_incoming *in, const json_t *record,
                         json_t *report, struct err *err)
{
    const json_t *diff_ids = json_object_get(record, "layers");
    uint64_t bytes = 0, dropped = 0, fresh = 0;

    if (json_array_size(diff_ids) != in->n)
        return err_set(err, ERR_INVALID,
                       "the configuration lists %zu layers, but the manifest lists %zu",
                       json_array_size(diff_ids), in->n);
    for (size_t i = 0; i < in->n; i++) {
        struct layer_import_in layer = in->layers[i];
        struct layer_import_out out = {0};
        int r;

        layer.diff_id = json_string_value(json_array_get(diff_ids, i));
        layer.max = im->max - bytes;
        /* A pull leaves out the layers that the store has. */
        if (layer.range.fd < 0 && !images_has_layer(im->s, layer.diff_id))
            return err_set(err, ERR_INVALID, "layer '%s' is missing in the OCI layout",
                           layer.digest);
        r = layer_import(im->s, im->ids, &layer, &out, err);
        if (r < 0)
            return import_limit_hint(im, err_wrap(err, "layer %zu of %zu", i + 1, in->n), err);
        if (out.stats.bytes > layer.max) { /* the store has this layer */
            err_set(err, ERR_LIMIT, "layer %zu of %zu exceeds the size limit", i + 1, in->n);
            return import_limit_hint(im, -ERR_LIMIT, err);
        }
        fresh += (uint64_t)r;
        bytes += out.stats.bytes;
        dropped += out.stats.dropped;
    }
    json_object_set_new(report, "layers", json_integer((json_int_t)in->n));
    json_object_set_new(report, "new_layers", json_integer((json_int_t)fresh));
    json_object_set_new(report, "bytes", json_integer((json_int_t)bytes));
    json_object_set_new(report, "dropped", json_integer((json_int_t)dropped));
    return 0;
}

static int import_put_image(struct import *im, const struct import_incoming *in, json_t *record,
                            struct err *err)
{
    char now[32];
    time_t t = time(NULL);
    struct tm tm;
    int r;

    strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &tm));
    json_object_set_new(record, "imported", json_string(now));
    json_object_set_new(record, "manifest", in->manifest ? json_string(in->manifest) : json_null());
    json_object_set_new(record, "agent", json_boolean(accounts_have(im->s, record, "agent")));
    r = images_put_blob(im->s, in->id, in->config, in->config_len, err);
    if (r < 0)
        return r;
    return images_put(im->s, in->id, record, err);
}

static int import_name_image(struct import *im, const struct import_incoming *in, json_t *report,
                             struct err *err)
{
    json_t *names = json_array();

    json_object_set_new(report, "names", names);
    if (im->name) {
        json_array_append_new(names, json_string(im->name));
        return images_tag(im->s, im->name, in->id, err);
    }
    for (char *const *n = in->names; n && *n; n++) {
        int r = images_tag(im->s, *n, in->id, err);

        if (r < 0)
            return r;
        json_array_append_new(names, json_string(*n));
    }
    return 0;
}

static int import_image(struct import *im, struct import_incoming *in, struct err *err)
{
    _cleanup_json_ json_t *record = NULL, *report = json_object();
    int r;

    digest_of(in->config, in->config_len, in->id);
    json_object_set_new(report, "id", json_string(in->id));
    r = image_config_parse_for(in->config, in->config_len, im->platform, &record, err);
    if (r < 0)
        return r;
    if (images_is_on_host(record))
        return err_set(err, ERR_UNSUPPORTED,
                       "the image is built on 'host' and cannot be imported on another machine");
    r = import_layers(im, in, record, report, err);
    if (r < 0)
        return r;
    r = import_put_image(im, in, record, err);
    if (r < 0)
        return r;
    r = import_name_image(im, in, report, err);
    if (r < 0)
        return r;
    json_array_append(im->images, report);
    return 0;
}

/* Invalid names in an archive are skipped; the image is still accepted. The requested
 * name is checked before the import begins. */
static char **import_usable_names(char *const *names)
{
    char **ret = NULL;

    for (; names && *names; names++) {
        char *ref;

        if (reference_parse(*names, &ref, NULL) >= 0)
            strv_push(&ret, ref);
    }
    return ret;
}

/* ---- docker save ---- */

/* In newer archives the name of a configuration is its digest; older ones use other names. */
static int import_check_config_name(const char *name, const char *text, size_t len, struct err *err)
{
    const char *hex = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    _cleanup_free_ char *want = xasprintf("sha256:%.64s", hex);
    char digest[DIGEST_MAX];

    digest_of(text, len, digest);
    if (digest_is_valid(want) && !STREQ(want, digest))
        return err_set(err, ERR_INVALID, "'%.200s' is damaged (its content has digest '%s')", name,
                       digest);
    return 0;
}

static int import_find_saved_layers(struct import *im, const struct saved_image *image,
                                    struct import_incoming *in, struct err *err)
{
    for (char **l = image->layers; *l; l++) {
        const struct tar_index_file *f = tar_index_find(&im->index, *l);

        if (!f)
            return err_set(err, ERR_INVALID, "file '%.200s' is missing in the archive", *l);
        in->layers[in->n++] = (struct layer_import_in){.range = {im->spool, f->at, f->size}};
    }
    return 0;
}

static int import_saved_one(struct import *im, const struct saved_image *image, struct err *err)
{
    _cleanup_strv_ char **names = import_usable_names(image->tags);
    _cleanup_free_ char *config = NULL;
    _cleanup_free_ struct layer_import_in *layers = NULL;
    struct import_incoming in = {.names = names};
    int r;

    r = tar_index_read(&im->index, image->config, IMAGES_CONFIG_MAX, &config, &in.config_len, err);
    if (r < 0)
        return r;
    r = import_check_config_name(image->config, config, in.config_len, err);
    if (r < 0)
        return r;
    layers = in.layers = xcalloc(strv_len(image->layers) + 1, sizeof(*layers));
    r = import_find_saved_layers(im, image, &in, err);
    if (r < 0)
        return r;
    in.config = config;
    return import_image(im, &in, err);
}

static int import_check_name_count(const struct import *im, size_t n, struct err *err)
{
    if (!im->name || n <= 1)
        return 0;
    err_set(err, ERR_INVALID, "the archive contains %zu images, but only one can be named '%s'", n,
            im->name);
    return err_hint(err, "Import without a name, so that each image keeps its own name.");
}

static int import_saved(struct import *im, struct err *err)
{
    _cleanup_(saved_images_done) struct saved_images list = {0};
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    r = tar_index_read(&im->index, "manifest.json", IMAGES_BLOB_MAX, &text, &len, err);
    if (r < 0)
        return r;
    r = saved_images_parse(text, len, &list, err);
    if (r < 0)
        return r;
    r = import_check_name_count(im, list.n, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < list.n; i++) {
        r = import_saved_one(im, &list.v[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- OCI layout ---- */

static char *import_blob_name(const char *digest)
{
    return xasprintf("blobs/sha256/%s", digest_hex(digest));
}

static int import_read_blob(struct import *im, const struct oci_descriptor *d, char **ret,
                            size_t *ret_len, struct err *err)
{
    _cleanup_free_ char *name = import_blob_name(d->digest), *text = NULL;
    char digest[DIGEST_MAX];
    size_t len;
    int r;

    r = tar_index_read(&im->index, name, IMAGES_BLOB_MAX, &text, &len, err);
    if (r < 0)
        return r;
    digest_of(text, len, digest);
    if (!STREQ(digest, d->digest) || len != d->size)
        return err_set(err, ERR_INVALID, "'%s' is damaged (it has %zu bytes with digest '%s')",
                       d->digest, len, digest);
    *ret = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

static int import_find_oci_layers(struct import *im, const struct oci_manifest *m,
                                  struct import_incoming *in, struct err *err)
{
    for (size_t i = 0; i < m->n; i++) {
        _cleanup_free_ char *name = import_blob_name(m->layers[i].digest);
        const struct tar_index_file *f = tar_index_find(&im->index, name);

        if (f && f->size != m->layers[i].size)
            return err_set(err, ERR_INVALID,
                           "the size of '%s' does not match the %llu bytes in the manifest", name,
                           (unsigned long long)m->layers[i].size);
        in->layers[in->n++] =
            (struct layer_import_in){.range = {f ? im->spool : -1, f ? f->at : 0, f ? f->size : 0},
                                     .digest = m->layers[i].digest};
    }
    return 0;
}

static int import_manifest(struct import *im, const struct oci_index_entry *e, struct err *err)
{
    char *const tags[] = {e->name, NULL};
    _cleanup_(oci_manifest_done) struct oci_manifest m = {0};
    _cleanup_strv_ char **names = import_usable_names(tags);
    _cleanup_free_ char *text = NULL, *config = NULL;
    _cleanup_free_ struct layer_import_in *layers = NULL;
    struct import_incoming in = {.manifest = e->d.digest, .names = names};
    size_t len;
    int r;

    r = import_read_blob(im, &e->d, &text, &len, err);
    if (r < 0)
        return r;
    r = oci_manifest_parse(text, len, &m, err);
    if (r < 0)
        return r;
    r = import_read_blob(im, &m.config, &config, &in.config_len, err);
    if (r < 0)
        return r;
    layers = in.layers = xcalloc(m.n + 1, sizeof(*layers));
    r = import_find_oci_layers(im, &m, &in, err);
    if (r < 0)
        return r;
    r = images_put_blob(im->s, e->d.digest, text, len, err);
    if (r < 0)
        return r;
    in.config = config;
    return import_image(im, &in, err);
}

static int import_index(struct import *im, const char *text, size_t len, unsigned depth,
                        struct err *err);

static int import_index_entry(struct import *im, const struct oci_index_entry *e, unsigned depth,
                              struct err *err)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    if (!e->is_index)
        return import_manifest(im, e, err);
    if (depth >= INDEX_DEPTH_MAX)
        return err_set(err, ERR_LIMIT,
                       "image indexes are nested too deeply (the limit is %d levels)",
                       INDEX_DEPTH_MAX);
    r = import_read_blob(im, &e->d, &text, &len, err);
    if (r < 0)
        return r;
    return import_index(im, text, len, depth + 1, err);
}

static int import_index(struct import *im, const char *text, size_t len, unsigned depth,
                        struct err *err)
{
    _cleanup_(oci_index_done) struct oci_index x = {0};
    int r;

    r = oci_index_parse_for(text, len, im->platform, &x, err);
    if (r < 0)
        return r;
    r = import_check_name_count(im, x.n, err);
    if (r < 0)
        return r;
    if (x.n == 0)
        return err_set(err, ERR_NOT_FOUND, "the OCI layout has no image for this machine");
    for (size_t i = 0; i < x.n; i++) {
        r = import_index_entry(im, &x.v[i], depth, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int import_oci(struct import *im, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    r = tar_index_read(&im->index, "index.json", IMAGES_BLOB_MAX, &text, &len, err);
    if (r < 0)
        return r;
    return import_index(im, text, len, 0, err);
}

/* ---- root file system ---- */

static int import_rootfs(struct import *im, struct err *err)
{
    _cleanup_free_ char *config = image_config_make(im->digest);
    struct layer_import_in layer = {.range = {im->spool, 0, im->size}};
    struct import_incoming in = {
        .config = config, .config_len = strlen(config), .layers = &layer, .n = 1};

    if (!im->name) {
        err_set(err, ERR_INVALID, "the archive of a root file system contains no image name");
        return err_hint(err, "Add a name: `ripcord image import FILE NAME`.");
    }
    return import_image(im, &in, err);
}

/* ---- any archive ---- */

/* An upload that was cut between two entries lacks only these end-of-archive blocks. */
static int import_check_end(const struct import *im, struct err *err)
{
    static const char zeros[TAR_END];
    char end[TAR_END];

    if (im->size >= TAR_END &&
        pread(im->spool, end, TAR_END, (off_t)(im->size - TAR_END)) == TAR_END &&
        memcmp(end, zeros, TAR_END) == 0)
        return 0;
    return err_set(err, ERR_INVALID,
                   "not a tar archive, or cut off (the end-of-archive blocks are missing)");
}

static int import_spool(struct import *im, int in, struct err *err)
{
    const struct decompress_range range = {.fd = in, .size = UINT64_MAX};
    struct stat st;
    int r;

    im->spool = openat(im->s->dir, "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (im->spool < 0)
        return err_sys(err, errno, "create a file in the image store");
    r = layer_import_decompress(&range, im->spool, im->max, im->digest, err);
    if (r < 0)
        return import_limit_hint(im, r, err);
    if (fstat(im->spool, &st) < 0)
        return err_sys(err, errno, "stat the archive");
    im->size = (uint64_t)st.st_size;
    return import_check_end(im, err);
}

/* An archive that our tar reader does not understand is left to the unpacker, which reads more
 * formats. */
static int import_any(struct import *im, struct err *err)
{
    if (tar_index_open(im->spool, &im->index, NULL) >= 0) {
        if (tar_index_find(&im->index, "manifest.json"))
            return import_saved(im, err);
        if (tar_index_find(&im->index, "oci-layout"))
            return import_oci(im, err);
    }
    return import_rootfs(im, err);
}

static void import_done(struct import *im)
{
    tar_index_done(&im->index);
    fd_close(im->spool);
    json_decref(im->images);
}

int import_archive(struct images *s, const struct confined_ids *ids, int in, uint64_t max,
                   const char *name, const char *platform, json_t **ret, struct err *err)
{
    _cleanup_(import_done) struct import im = {.s = s,
                                               .ids = ids,
                                               .max = MIN(max, UNPACK_BYTES_MAX),
                                               .platform = platform,
                                               .spool = -1,
                                               .images = json_array()};
    _cleanup_free_ char *ref = NULL;
    int r;

    if (name) {
        r = reference_parse(name, &ref, err);
        if (r < 0)
            return r;
    }
    im.name = ref;
    r = import_spool(&im, in, err);
    if (r < 0)
        return r;
    r = import_any(&im, err);
    if (r < 0)
        return r;
    *ret = json_pack("{s:O}", "images", im.images);
    return 0;
}
