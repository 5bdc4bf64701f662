#include "build/cache.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/xalloc.h"

enum { ENTRY_MAX = 4096 };

int cache_get(const struct images *s, const char *key, struct cache_entry *ret)
{
    _cleanup_free_ char *path = xasprintf("cache/%s", digest_hex(key)), *text = NULL;
    _cleanup_json_ json_t *doc = NULL;
    const char *layer, *created;
    size_t len;

    if (file_read(s->dir, path, ENTRY_MAX, &text, &len, NULL) < 0 ||
        json_parse("a step", text, len, &doc, NULL) < 0)
        return 0;
    layer = json_string_value(json_object_get(doc, "layer"));
    created = json_string_value(json_object_get(doc, "created"));
    if (layer && (!digest_is_valid(layer) || !images_has_layer(s, layer)))
        return 0;
    snprintf(ret->layer, sizeof(ret->layer), "%s", layer ? layer : "");
    ret->created = xstrdup(created ? created : "");
    return 1;
}

int cache_put(struct images *s, const char *key, const struct cache_entry *e, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("cache/%s", digest_hex(key)), *text = NULL;
    _cleanup_json_ json_t *doc = json_object();

    json_object_set_new(doc, "layer", *e->layer ? json_string(e->layer) : json_null());
    json_object_set_new(doc, "created", json_string(e->created));
    text = json_to_text(doc, true);
    return file_replace_shared(s->dir, path, text, strlen(text), 0600, err);
}
