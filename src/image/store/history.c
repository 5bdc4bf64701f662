/*
 * The build history of an image, from its configuration. The author of the configuration can write
 * anything there, so lines are cut to a limit. A line gets its layer only if the number of lines
 * with a layer equals the number of layers.
 */
#include <string.h>

#include "image/store/images.h"
#include "lib/base/cleanup.h"
#include "lib/base/text.h"

enum { LINES_MAX = 1000, LINE_MAX_BYTES = 16 << 10 };

static bool images_history_has_layer(const json_t *line)
{
    return !json_is_true(json_object_get(line, "empty_layer"));
}

/* Null for a value that is not a string. Never cuts within a character. */
static json_t *images_history_cut(const json_t *value)
{
    const char *s = json_string_value(value);
    size_t len = 0;
    unsigned c;

    if (!s)
        return json_null();
    for (size_t n; s[len]; len += n) {
        n = text_utf8_next(s + len, strnlen(s + len, 4), &c);
        if (!n || len + n > LINE_MAX_BYTES)
            break;
    }
    return json_stringn(s, len);
}

/* layer: the layer of this line, or NULL. */
static json_t *images_history_line_json(const struct images *s, const json_t *line,
                                        const char *layer)
{
    json_t *ret = json_object();

    json_object_set_new(ret, "created_by", images_history_cut(json_object_get(line, "created_by")));
    json_object_set_new(ret, "created", images_history_cut(json_object_get(line, "created")));
    json_object_set_new(ret, "layer", layer ? json_string(layer) : json_null());
    json_object_set_new(ret, "bytes",
                        layer ? json_integer((json_int_t)images_layer_bytes(s, layer))
                        : images_history_has_layer(line) ? json_null()
                                                         : json_integer(0));
    return ret;
}

int images_history(const struct images *s, const json_t *image, json_t **ret, struct err *err)
{
    const char *id = json_string_value(json_object_get(image, "id"));
    const json_t *layers = json_object_get(image, "layers"), *lines, *line;
    _cleanup_json_ json_t *config = NULL;
    _cleanup_free_ char *text = NULL;
    size_t len, i, n = 0, next = 0;
    bool known;
    int r = images_read_blob(s, id, &text, &len, err);

    if (r < 0)
        return err_wrap(err, "image '%s'", id);
    r = json_parse("image configuration", text, len, &config, err);
    if (r < 0)
        return err_wrap(err, "image '%s'", id);
    lines = json_object_get(config, "history");
    json_array_foreach (lines, i, line)
        n += images_history_has_layer(line);
    known = n == json_array_size(layers);
    *ret = json_array();
    json_array_foreach (lines, i, line) {
        const char *layer = NULL;

        if (i >= LINES_MAX)
            break;
        if (known && images_history_has_layer(line))
            layer = json_string_value(json_array_get(layers, next++));
        json_array_append_new(*ret, images_history_line_json(s, line, layer));
    }
    return 0;
}
