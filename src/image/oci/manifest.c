#include "image/oci/manifest.h"

#include <string.h>

#include "image/oci/reference.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum {
    NAME_IN_ARCHIVE_MAX = 4096,
    CONFIG_VALUES_MAX = 2 * COMMAND_STRINGS_MAX, /* more would only be large in memory */
};

/* These documents can have fields that we do not know: only the needed ones are read. */
static int manifest_text_of(const json_t *o, const char *key, const char **ret, struct err *err)
{
    const json_t *v = json_object_get(o, key);

    if (!v || json_is_null(v)) {
        *ret = NULL;
        return 0;
    }
    if (!json_is_string(v))
        return err_set(err, ERR_INVALID, "'%s' is not a string", key);
    *ret = json_string_value(v);
    return 0;
}

static int manifest_texts_of(const json_t *o, const char *key, size_t max, char ***ret,
                             struct err *err)
{
    const json_t *v = json_object_get(o, key);

    if (!v || json_is_null(v)) {
        *ret = strv_copy(NULL);
        return 0;
    }
    if (!json_is_array(v))
        return err_set(err, ERR_INVALID, "'%s' is not a list", key);
    if (json_array_size(v) > max)
        return err_set(err, ERR_LIMIT, "'%s' has too many entries (the limit is %zu)", key, max);
    return json_read_strv(v, key, ret, err);
}

/* ---- docker save ---- */

static int manifest_saved_image_parse(const json_t *o, struct saved_image *ret, struct err *err)
{
    const char *config = NULL;
    int r;

    r = manifest_text_of(o, "Config", &config, err);
    if (r < 0)
        return r;
    if (!config || strlen(config) > NAME_IN_ARCHIVE_MAX)
        return err_set(err, ERR_INVALID, "'Config' is missing");
    r = manifest_texts_of(o, "RepoTags", MANIFEST_TAGS_MAX, &ret->tags, err);
    if (r < 0)
        return r;
    r = manifest_texts_of(o, "Layers", IMAGES_LAYERS_MAX, &ret->layers, err);
    if (r < 0)
        return r;
    ret->config = xstrdup(config);
    return 0;
}

int saved_images_parse(const char *text, size_t len, struct saved_images *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct saved_images s = {0};
    int r;

    r = json_parse("manifest.json", text, len, &doc, err);
    if (r < 0)
        return r;
    if (!json_is_array(doc) || json_array_size(doc) == 0 ||
        json_array_size(doc) > MANIFEST_IMAGES_MAX)
        return err_set(err, ERR_INVALID, "manifest.json: expected a list of 1 to %d images",
                       MANIFEST_IMAGES_MAX);
    s.v = xcalloc(json_array_size(doc), sizeof(*s.v));
    while (s.n < json_array_size(doc)) {
        struct saved_image *image = &s.v[s.n];

        r = manifest_saved_image_parse(json_array_get(doc, s.n++), image, err);
        if (r < 0) {
            saved_images_done(&s);
            return err_wrap(err, "manifest.json");
        }
    }
    *ret = s;
    return 0;
}

void saved_images_done(struct saved_images *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].config);
        strv_free(s->v[i].tags);
        strv_free(s->v[i].layers);
    }
    free(s->v);
    *s = (struct saved_images){0};
}

/* ---- OCI ---- */

static int manifest_descriptor_parse(const json_t *o, struct oci_descriptor *ret, struct err *err)
{
    const char *digest = json_string_value(json_object_get(o, "digest"));
    const json_t *size = json_object_get(o, "size");

    if (!digest_is_valid(digest))
        return err_set(err, ERR_INVALID, "'%.100s' is not a sha256 digest", digest ? digest : "");
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return err_set(err, ERR_INVALID, "the size of '%s' is not a number", digest);
    memcpy(ret->digest, digest, DIGEST_MAX);
    ret->size = (uint64_t)json_integer_value(size);
    return 0;
}

/* A platform without this key fits all machines. */
static bool manifest_word_fits(const json_t *platform, const char *key, const char *want,
                               size_t len)
{
    const char *is = json_string_value(json_object_get(platform, key));

    return !is || (strlen(is) == len && strncmp(is, want, len) == 0);
}

static bool manifest_is_for(const json_t *platform, const char *wanted)
{
    const char *os = wanted ? wanted : "linux/" IMAGES_ARCHITECTURE;
    size_t os_len = strcspn(os, "/");
    const char *arch = os + os_len + (os[os_len] == '/');
    size_t arch_len = strcspn(arch, "/");
    const char *variant = arch + arch_len + (arch[arch_len] == '/');

    return manifest_word_fits(platform, "os", os, os_len) &&
           manifest_word_fits(platform, "architecture", arch, arch_len) &&
           (!*variant || manifest_word_fits(platform, "variant", variant, strlen(variant)));
}

static bool manifest_media_is_index(const char *type)
{
    return type && (STREQ(type, "application/vnd.oci.image.index.v1+json") ||
                    STREQ(type, "application/vnd.docker.distribution.manifest.list.v2+json"));
}

/* containerd writes a full name; other tools often write only a tag. */
static const char *manifest_name_of(const json_t *o)
{
    const json_t *notes = json_object_get(o, "annotations");
    const char *name = json_string_value(json_object_get(notes, "io.containerd.image.name"));

    return name ? name
                : json_string_value(json_object_get(notes, "org.opencontainers.image.ref.name"));
}

static int manifest_index_entry_add(struct oci_index *x, const json_t *o, const char *wanted,
                                    struct err *err)
{
    const char *name = manifest_name_of(o);
    struct oci_index_entry e = {0};
    int r;

    if (!manifest_is_for(json_object_get(o, "platform"), wanted))
        return 0;
    r = manifest_descriptor_parse(o, &e.d, err);
    if (r < 0)
        return r;
    e.is_index = manifest_media_is_index(json_string_value(json_object_get(o, "mediaType")));
    e.name = name && strlen(name) <= REFERENCE_MAX ? xstrdup(name) : NULL;
    x->v[x->n++] = e;
    return 0;
}

int oci_index_parse(const char *text, size_t len, struct oci_index *ret, struct err *err)
{
    return oci_index_parse_for(text, len, NULL, ret, err);
}

int oci_index_parse_for(const char *text, size_t len, const char *platform, struct oci_index *ret,
                        struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *list, *o;
    struct oci_index x = {0};
    size_t i;
    int r;

    r = json_parse("image index", text, len, &doc, err);
    if (r < 0)
        return r;
    list = json_object_get(doc, "manifests");
    if (!json_is_array(list) || json_array_size(list) > MANIFEST_IMAGES_MAX)
        return err_set(err, ERR_INVALID, "image index: expected a list of at most %d manifests",
                       MANIFEST_IMAGES_MAX);
    x.v = xcalloc(json_array_size(list) + 1, sizeof(*x.v));
    json_array_foreach (list, i, o) {
        r = manifest_index_entry_add(&x, o, platform, err);
        if (r < 0) {
            oci_index_done(&x);
            return err_wrap(err, "image index");
        }
    }
    *ret = x;
    return 0;
}

void oci_index_done(struct oci_index *x)
{
    for (size_t i = 0; i < x->n; i++)
        free(x->v[i].name);
    free(x->v);
    *x = (struct oci_index){0};
}

int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *layers, *o;
    struct oci_manifest m = {0};
    size_t i;
    int r;

    r = json_parse("manifest", text, len, &doc, err);
    if (r < 0)
        return r;
    layers = json_object_get(doc, "layers");
    if (!json_is_array(layers) || json_array_size(layers) > IMAGES_LAYERS_MAX)
        return err_set(err, ERR_INVALID, "manifest: expected a list of at most %d layers",
                       IMAGES_LAYERS_MAX);
    r = manifest_descriptor_parse(json_object_get(doc, "config"), &m.config, err);
    if (r < 0)
        return err_wrap(err, "manifest: config");
    m.layers = xcalloc(json_array_size(layers) + 1, sizeof(*m.layers));
    json_array_foreach (layers, i, o) {
        r = manifest_descriptor_parse(o, &m.layers[m.n++], err);
        if (r < 0) {
            oci_manifest_done(&m);
            return err_wrap(err, "manifest: layer");
        }
    }
    *ret = m;
    return 0;
}

void oci_manifest_done(struct oci_manifest *m)
{
    free(m->layers);
    *m = (struct oci_manifest){0};
}

/* ---- configuration ---- */

static int manifest_copy_text(const json_t *from, const char *key, json_t *to, const char *as,
                              struct err *err)
{
    const char *text = NULL;
    int r = manifest_text_of(from, key, &text, err);

    if (r < 0)
        return r;
    json_object_set_new(to, as, text && *text ? json_string(text) : json_null());
    return 0;
}

static int manifest_copy_texts(const json_t *from, const char *key, size_t max, json_t *to,
                               const char *as, struct err *err)
{
    _cleanup_strv_ char **v = NULL;
    int r = manifest_texts_of(from, key, max, &v, err);

    if (r < 0)
        return r;
    json_object_set_new(to, as, json_from_strv(v));
    return 0;
}

static int manifest_check_layers(const json_t *record, struct err *err)
{
    const json_t *v;
    size_t i;

    json_array_foreach (json_object_get(record, "layers"), i, v)
        if (!digest_is_valid(json_string_value(v)))
            return err_set(err, ERR_INVALID, "layer %zu: '%.100s' is not a sha256 digest", i,
                           json_string_value(v));
    return 0;
}

static int manifest_check_platform(const json_t *doc, const char *wanted, struct err *err)
{
    if (manifest_is_for(doc, wanted))
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "its platform is %.40s/%.40s, but %.80s is required",
                   json_string_value(json_object_get(doc, "os")) ?: "linux",
                   json_string_value(json_object_get(doc, "architecture")) ?: "?",
                   wanted ? wanted : "linux/" IMAGES_ARCHITECTURE " (this machine)");
}

static int manifest_read_base(const json_t *doc, json_t *record, struct err *err)
{
    const char *base = NULL;
    int r = manifest_text_of(doc, IMAGE_CONFIG_BASE, &base, err);

    if (r < 0)
        return r;
    if (base && !STREQ(base, IMAGES_HOST_LAYER))
        return err_set(err, ERR_UNSUPPORTED, "unsupported base '%.64s'", base);
    json_object_set_new(record, "base", base ? json_string("host") : json_null());
    return 0;
}

static int manifest_fill_record(const json_t *doc, const char *platform, json_t *record,
                                struct err *err)
{
    const json_t *config = json_object_get(doc, "config");
    const json_t *rootfs = json_object_get(doc, "rootfs");
    const struct {
        const json_t *from;
        const char *key, *as;
        size_t max; /* entries of a list; 0: a text */
    } fields[] = {
        {doc, "architecture", "architecture", 0},
        {doc, "created", "created", 0},
        {config, "Env", "env", COMMAND_STRINGS_MAX},
        {config, "User", "user", 0},
        {config, "WorkingDir", "workdir", 0},
        {config, "Entrypoint", "entrypoint", COMMAND_STRINGS_MAX},
        {config, "Cmd", "cmd", COMMAND_STRINGS_MAX},
    };
    int r;

    r = manifest_check_platform(doc, platform, err);
    if (r < 0)
        return r;
    r = manifest_copy_texts(rootfs, "diff_ids", IMAGES_LAYERS_MAX, record, "layers", err);
    if (r < 0)
        return r;
    r = manifest_check_layers(record, err);
    if (r < 0)
        return r;
    r = manifest_read_base(doc, record, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (fields[i].max)
            r = manifest_copy_texts(fields[i].from, fields[i].key, fields[i].max, record,
                                    fields[i].as, err);
        else
            r = manifest_copy_text(fields[i].from, fields[i].key, record, fields[i].as, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int image_config_parse(const char *text, size_t len, json_t **ret, struct err *err)
{
    return image_config_parse_for(text, len, NULL, ret, err);
}

int image_config_parse_for(const char *text, size_t len, const char *platform, json_t **ret,
                           struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *record = json_object();
    int r;

    r = json_check_values("image configuration", text, len, CONFIG_VALUES_MAX, err);
    if (r < 0)
        return r;
    r = json_parse("image configuration", text, len, &doc, err);
    if (r < 0)
        return r;
    if (!json_is_object(doc))
        return err_set(err, ERR_INVALID, "image configuration: not a JSON object");
    r = manifest_fill_record(doc, platform, record, err);
    if (r < 0)
        return err_wrap(err, "image configuration");
    *ret = json_incref(record);
    return 0;
}

const char *image_config_architecture(void)
{
    return IMAGES_ARCHITECTURE;
}

char *image_config_make(const char *diff_id)
{
    _cleanup_json_ json_t *doc =
        json_pack("{s:s, s:s, s:{}, s:{s:s, s:[s]}}", "architecture", IMAGES_ARCHITECTURE, "os",
                  "linux", "config", "rootfs", "type", "layers", "diff_ids", diff_id);

    return json_to_text(doc, true);
}
