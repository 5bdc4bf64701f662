/*
 * The text of docs/openapi.yaml is ours, so an error in it is a bug, and every test that reads the
 * answer finds it.
 */
#include "daemon/main/openapi.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "openapi-text.h"

enum { DEPTH_MAX = 64 };

/* A plain scalar may be a number or a word of JSON; a quoted one is a string. */
static json_t *openapi_scalar(const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    json_t *value = NULL;

    if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

static json_t *openapi_value(yaml_parser_t *p, const yaml_event_t *e, int depth);

/* The next value, or NULL at the end of a list or map, or on an error. */
static json_t *openapi_next(yaml_parser_t *p, int depth)
{
    json_t *value = NULL;
    yaml_event_t e;

    if (!yaml_parser_parse(p, &e))
        return NULL;
    value = openapi_value(p, &e, depth);
    yaml_event_delete(&e);
    return value;
}

static json_t *openapi_list(yaml_parser_t *p, int depth)
{
    json_t *list = json_array(), *item;

    while ((item = openapi_next(p, depth)))
        json_array_append_new(list, item);
    return list;
}

static json_t *openapi_map(yaml_parser_t *p, int depth)
{
    json_t *map = json_object(), *key;

    while ((key = openapi_next(p, depth))) {
        _cleanup_free_ char *name =
            json_is_string(key) ? strdup(json_string_value(key)) : json_dumps(key, JSON_ENCODE_ANY);

        json_decref(key);
        json_object_set_new(map, name, openapi_next(p, depth));
    }
    return map;
}

static json_t *openapi_value(yaml_parser_t *p, const yaml_event_t *e, int depth)
{
    if (e->type == YAML_SCALAR_EVENT)
        return openapi_scalar(e);
    if (depth == DEPTH_MAX)
        return NULL;
    if (e->type == YAML_SEQUENCE_START_EVENT)
        return openapi_list(p, depth + 1);
    return e->type == YAML_MAPPING_START_EVENT ? openapi_map(p, depth + 1) : NULL;
}

static char *openapi_to_json(void)
{
    static const char text[] = OPENAPI_YAML;
    yaml_parser_t parser;
    yaml_event_type_t type = YAML_NO_EVENT;
    json_t *doc;
    char *json;

    if (!yaml_parser_initialize(&parser))
        return NULL;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, sizeof(text) - 1);
    do {
        yaml_event_t e;

        if (!yaml_parser_parse(&parser, &e))
            break;
        type = e.type;
        yaml_event_delete(&e);
    } while (type == YAML_STREAM_START_EVENT);
    doc = openapi_next(&parser, 0);
    yaml_parser_delete(&parser);
    json = doc ? json_to_text(doc, false) : NULL;
    json_decref(doc);
    return json;
}

const char *openapi_json(void)
{
    static char *json; /* the text never changes */

    if (!json)
        json = openapi_to_json();
    return json;
}
