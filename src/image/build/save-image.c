#include "image/build/save-image.h"

#include <string.h>

#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "image/store/accounts.h"
#include "lib/base/cleanup.h"
#include "lib/base/time.h"

/* The time stays when the image is built again, so that the record stays the same. */
static json_t *save_image_imported_at(const struct images *s, const char *id)
{
    _cleanup_json_ json_t *before = NULL;
    const char *then = NULL;
    char now[TIME_FORMAT_MAX];

    if (images_read(s, id, &before, NULL) >= 0)
        then = json_string_value(json_object_get(before, "imported"));
    return json_string(then ? then : time_format(time_wall(), now));
}

int save_image(struct images *s, const char *config, char id[static DIGEST_MAX], struct err *err)
{
    _cleanup_json_ json_t *record = NULL;
    int r;

    digest_of(config, strlen(config), id);
    r = image_config_parse(config, strlen(config), &record, err);
    if (r < 0)
        return r;
    json_object_set_new(record, "imported", save_image_imported_at(s, id));
    json_object_set_new(record, "manifest", json_null());
    json_object_set_new(record, "agent", json_boolean(accounts_have(s, record, "agent")));
    r = images_put_blob(s, id, config, strlen(config), err);
    if (r < 0)
        return r;
    return images_put(s, id, record, err);
}

int save_image_check_names(char *const *tags, struct err *err)
{
    for (; tags && *tags; tags++) {
        _cleanup_free_ char *name = NULL;
        int r = reference_parse(*tags, &name, err);

        if (r < 0)
            return r;
    }
    return 0;
}

int save_image_tag(struct images *s, char *const *tags, const char *id, json_t *names,
                   struct err *err)
{
    for (; tags && *tags; tags++) {
        _cleanup_free_ char *name = NULL;
        int r = reference_parse(*tags, &name, err);

        if (r < 0)
            return r;
        r = images_tag(s, name, id, err);
        if (r < 0)
            return r;
        json_array_append_new(names, json_string(name));
    }
    return 0;
}
