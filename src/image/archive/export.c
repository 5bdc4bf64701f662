/*
 * All layers are packed into unnamed files before the first byte of the archive is written, because
 * the documents that describe them come first. A failure is then an error instead of half an
 * archive, and a reader of the stream knows each file before it comes.
 */
#include "image/archive/export.h"

#include <errno.h>
#include <string.h>

#include "image/archive/packed-layer.h"
#include "image/oci/layout.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

#define MEDIA "application/vnd.oci.image."

struct export
{
    const struct images *s;
    const struct confined_ids *ids;
    enum export_form form;
    struct oci_layout out;
    char id[DIGEST_MAX];
    char **names;                /* owned: names for the archive */
    char *config;                /* owned */
    char *manifest;              /* owned */
    struct packed_layer *layers; /* bottom first */
    size_t n;
    uint64_t bytes; /* of all layers */
};

int export_form_parse(const char *name, enum export_form *ret, struct err *err)
{
    static const char *const names[] = {
        [EXPORT_OCI] = "oci", [EXPORT_DOCKER] = "docker", [EXPORT_PUSH] = "push"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (STREQ(names[i], name)) {
            *ret = (enum export_form)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "unknown export format '%.40s'; supported: oci, docker", name);
}

/* ---- the documents ---- */

/* The requested name; or all names of the image, if it was requested by its digest. */
static int export_find_names(struct export *x, const char *name, struct err *err)
{
    _cleanup_json_ json_t *refs = NULL;
    _cleanup_free_ char *ref = NULL;
    const char *key;
    json_t *of;
    int r = images_refs(x->s, &refs, err);

    if (r < 0)
        return r;
    ref = images_ref(refs, name);
    if (ref) {
        strv_add(&x->names, ref);
        return 0;
    }
    json_object_foreach (refs, key, of)
        if (json_is_string(of) && STREQ(json_string_value(of), x->id))
            strv_add(&x->names, key);
    return 0;
}

static int export_pack_layers(struct export *x, const json_t *list, struct err *err)
{
    x->layers = xcalloc(json_array_size(list) + 1, sizeof(*x->layers));
    while (x->n < json_array_size(list)) {
        const char *digest = json_string_value(json_array_get(list, x->n));
        struct packed_layer *p = &x->layers[x->n++];
        int r;

        *p = (struct packed_layer)PACKED_LAYER_INIT;
        if (!digest_is_valid(digest))
            return err_set(err, ERR_SYSTEM, "the image record is damaged");
        r = packed_layer_make(x->s, x->ids, digest, x->form == EXPORT_PUSH, p, err);
        if (r < 0)
            return r;
        x->bytes += p->size;
    }
    return 0;
}

/* The image's own configuration, with the digests of the packed layers. It stays the same byte for
 * byte if they are the same. */
static int export_make_config(struct export *x, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *doc = NULL, *ids = json_array();
    size_t len;
    int r = images_read_blob(x->s, x->id, &text, &len, err);

    if (r < 0)
        return r;
    r = json_parse("image configuration", text, len, &doc, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < x->n; i++)
        json_array_append_new(ids, json_string(x->layers[i].diff_id));
    if (json_equal(ids, json_object_get(json_object_get(doc, "rootfs"), "diff_ids"))) {
        x->config = TAKE_PTR(text);
        return 0;
    }
    json_object_set_new(doc, "rootfs", json_pack("{s:s, s:O}", "type", "layers", "diff_ids", ids));
    x->config = json_to_text(doc, true);
    return 0;
}

static json_t *export_descriptor(const char *type, const char *digest, uint64_t size)
{
    return json_pack("{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size",
                     (json_int_t)size);
}

static json_t *export_describe_text(const char *type, const char *text)
{
    char digest[DIGEST_MAX];

    digest_of(text, strlen(text), digest);
    return export_descriptor(type, digest, strlen(text));
}

static void export_make_manifest(struct export *x)
{
    const char *type = x->form == EXPORT_PUSH ? MEDIA "layer.v1.tar+gzip" : MEDIA "layer.v1.tar";
    json_t *layers = json_array();
    _cleanup_json_ json_t *doc = NULL;

    for (size_t i = 0; i < x->n; i++)
        json_array_append_new(layers,
                              export_descriptor(type, x->layers[i].digest, x->layers[i].size));
    doc = json_pack("{s:i, s:s, s:o, s:o}", "schemaVersion", 2, "mediaType",
                    MEDIA "manifest.v1+json", "config",
                    export_describe_text(MEDIA "config.v1+json", x->config), "layers", layers);
    x->manifest = json_to_text(doc, true);
}

static char *export_make_index(const struct export *x)
{
    _cleanup_json_ json_t *doc = NULL;
    json_t *list = json_array();
    char *const none[] = {NULL};
    char *const *n = x->names ? x->names : none;

    do {
        json_t *d = export_describe_text(MEDIA "manifest.v1+json", x->manifest);

        /* containerd and Docker read the first annotation, Podman and skopeo the second. */
        if (*n)
            json_object_set_new(d, "annotations",
                                json_pack("{s:s, s:s}", "io.containerd.image.name", *n,
                                          "org.opencontainers.image.ref.name", *n));
        json_array_append_new(list, d);
    } while (*n && *++n);
    doc = json_pack("{s:i, s:s, s:o}", "schemaVersion", 2, "mediaType", MEDIA "index.v1+json",
                    "manifests", list);
    return json_to_text(doc, true);
}

/* ---- the archive ---- */

/* A layer that occurs twice is one file. */
static bool export_is_put(const struct export *x, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (STREQ(x->layers[j].digest, x->layers[i].digest))
            return true;
    return false;
}

/* manifest.json for `docker load`, which finds the other files by the names in it. */
static int export_put_docker_list(struct export *x, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL, *config = NULL;
    json_t *tags = json_array(), *layers = json_array();
    char digest[DIGEST_MAX];

    digest_of(x->config, strlen(x->config), digest);
    config = xasprintf("blobs/sha256/%s", digest_hex(digest));
    for (char **n = x->names; n && *n; n++)
        json_array_append_new(tags, json_string(*n));
    for (size_t i = 0; i < x->n; i++)
        json_array_append_new(layers,
                              json_sprintf("blobs/sha256/%s", digest_hex(x->layers[i].digest)));
    doc = json_pack("[{s:s, s:o, s:o}]", "Config", config, "RepoTags", tags, "Layers", layers);
    text = json_to_text(doc, true);
    return oci_layout_text(&x->out, "manifest.json", text, strlen(text), err);
}

static int export_put_all(struct export *x, int out, struct err *err)
{
    _cleanup_free_ char *index = export_make_index(x);
    int r = oci_layout_begin(&x->out, out, err);

    if (r < 0)
        return r;
    r = oci_layout_text(&x->out, "index.json", index, strlen(index), err);
    if (r < 0)
        return r;
    if (x->form == EXPORT_DOCKER) {
        r = export_put_docker_list(x, err);
        if (r < 0)
            return r;
    }
    r = oci_layout_document(&x->out, x->manifest, strlen(x->manifest), err);
    if (r < 0)
        return r;
    r = oci_layout_document(&x->out, x->config, strlen(x->config), err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < x->n; i++) {
        const struct packed_layer *p = &x->layers[i];

        if (export_is_put(x, i))
            continue;
        r = oci_layout_blob(&x->out, p->digest, p->fd, p->size, err);
        if (r < 0)
            return r;
    }
    return oci_layout_finish(&x->out, err);
}

/* ---- the image ---- */

static int export_prepare(struct export *x, const char *name, struct err *err)
{
    _cleanup_json_ json_t *record = NULL;
    int r = images_resolve(x->s, name, x->id, err);

    if (r < 0)
        return r;
    r = images_read(x->s, x->id, &record, err);
    if (r < 0)
        return r;
    if (images_is_on_host(record)) {
        err_set(err, ERR_UNSUPPORTED,
                "image '%.200s' is built on 'host' and does not contain the /usr of this machine",
                name);
        return err_hint(err, "Build it on a stored image, for example from `ripcord image pull`.");
    }
    r = export_find_names(x, name, err);
    if (r < 0)
        return r;
    r = export_pack_layers(x, json_object_get(record, "layers"), err);
    if (r < 0)
        return r;
    r = export_make_config(x, err);
    if (r < 0)
        return r;
    export_make_manifest(x);
    return 0;
}

static void export_done(struct export *x)
{
    for (size_t i = 0; i < x->n; i++)
        packed_layer_done(&x->layers[i]);
    free(x->layers);
    strv_free(x->names);
    free(x->config);
    free(x->manifest);
}

int export_image(const struct images *s, const struct confined_ids *ids, const char *name,
                 enum export_form form, int out, json_t **ret, struct err *err)
{
    _cleanup_(export_done) struct export x = {.s = s, .ids = ids, .form = form};
    _cleanup_err_ struct err why = ERR_INIT;
    char id[DIGEST_MAX];
    int r = export_prepare(&x, name, err);

    if (r < 0)
        return r;
    /* EPIPE is not an error here: a reader that has closed its end reports its own error. */
    if (export_put_all(&x, out, &why) < 0 && why.errnum != EPIPE)
        return err_move(err, &why);
    digest_of(x.config, strlen(x.config), id);
    *ret = json_pack("{s:s, s:s, s:I, s:I}", "id", x.id, "exported", id, "layers", (json_int_t)x.n,
                     "bytes", (json_int_t)x.bytes);
    return 0;
}
