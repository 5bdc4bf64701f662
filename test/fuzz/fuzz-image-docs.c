/* Documents of images: what is accepted holds only checked digests and counts. The first byte says
 * which kind it is. */
#include "fuzz.h"
#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "image/store/images.h"
#include "lib/base/strv.h"

static void check_record(const char *text, size_t len)
{
    const json_t *v;
    json_t *record;
    size_t i;

    if (image_config_parse(text, len, &record, NULL) < 0)
        return;
    MUST(json_array_size(json_object_get(record, "layers")) <= IMAGES_LAYERS_MAX);
    json_array_foreach (json_object_get(record, "layers"), i, v)
        MUST(digest_is_valid(json_string_value(v)));
    json_decref(record);
}

static void check_manifest(const char *text, size_t len)
{
    struct oci_manifest m;

    if (oci_manifest_parse(text, len, &m, NULL) < 0)
        return;
    MUST(m.n <= IMAGES_LAYERS_MAX && digest_is_valid(m.config.digest));
    for (size_t i = 0; i < m.n; i++)
        MUST(digest_is_valid(m.layers[i].digest));
    oci_manifest_done(&m);
}

static void check_index(const char *text, size_t len)
{
    struct oci_index x;

    if (oci_index_parse(text, len, &x, NULL) < 0)
        return;
    for (size_t i = 0; i < x.n; i++)
        MUST(digest_is_valid(x.v[i].d.digest));
    oci_index_done(&x);
}

static void check_saved(const char *text, size_t len)
{
    struct saved_images s;

    if (saved_images_parse(text, len, &s, NULL) < 0)
        return;
    MUST(s.n >= 1 && s.n <= MANIFEST_IMAGES_MAX);
    for (size_t i = 0; i < s.n; i++)
        MUST(s.v[i].config && strv_len(s.v[i].layers) <= IMAGES_LAYERS_MAX);
    saved_images_done(&s);
}

/* A name that was accepted is one that is accepted, and stays as it is. */
static void check_name(const char *name)
{
    char *once, *twice;

    if (reference_parse(name, &once, NULL) < 0)
        return;
    MUST(!strstr(once, "..") && once[0] != '/');
    if (strlen(once) <= REFERENCE_MAX) {
        MUST(reference_parse(once, &twice, NULL) >= 0 && strcmp(once, twice) == 0);
        free(twice);
    }
    free(once);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const checks[])(const char *, size_t) = {check_record, check_manifest,
                                                           check_index, check_saved};
    char *copy;

    if (size < 1)
        return 0;
    copy = fuzz_copy(data + 1, size - 1);
    if (data[0] % 5 < 4) {
        checks[data[0] % 5](copy, size - 1);
    } else {
        char *name = strndup(copy, size - 1);

        MUST(name);
        check_name(name);
        free(name);
    }
    free(copy);
    return 0;
}
