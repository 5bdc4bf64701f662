#include "image/build/step-cache.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { ENTRY_MAX = 4096 };

void step_cache_entry_done(struct step_cache_entry *e)
{
    free(e->created);
    e->created = NULL;
}

int step_cache_get_note(const struct images *s, const char *key, json_t **ret)
{
    _cleanup_free_ char *path = xasprintf("cache/%s", digest_hex(key)), *text = NULL;
    size_t len;

    return file_read(s->dir, path, ENTRY_MAX, &text, &len, NULL) >= 0 &&
           json_parse("a step", text, len, ret, NULL) >= 0;
}

int step_cache_put_note(struct images *s, const char *key, json_t *note, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("cache/%s", digest_hex(key));
    _cleanup_free_ char *text = json_to_text(note, true);

    json_decref(note);
    return file_replace_shared(s->dir, path, text, strlen(text), 0600, err);
}

int step_cache_get(const struct images *s, const char *key, struct step_cache_entry *ret)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *layer, *created;

    if (step_cache_get_note(s, key, &doc) <= 0)
        return 0;
    layer = json_string_value(json_object_get(doc, "layer"));
    created = json_string_value(json_object_get(doc, "created"));
    if (layer && (!digest_is_valid(layer) || !images_has_layer(s, layer)))
        return 0;
    snprintf(ret->layer, sizeof(ret->layer), "%s", layer ? layer : "");
    ret->created = xstrdup(created ? created : "");
    return 1;
}

int step_cache_put(struct images *s, const char *key, const struct step_cache_entry *e,
                   struct err *err)
{
    json_t *doc = json_object();

    json_object_set_new(doc, "layer", *e->layer ? json_string(e->layer) : json_null());
    json_object_set_new(doc, "created", json_string(e->created));
    return step_cache_put_note(s, key, doc, err);
}
