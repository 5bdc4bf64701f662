#include "lib/base/json.h"

#include <malloc.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { JSON_FIELDS_MAX = 64 };

/* Counts brackets outside strings before jansson allocates anything; its own limit is 2048. */
static bool json_too_deep(const char *text, size_t len)
{
    size_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_DEPTH_LIMIT)
                return true;
        } else if ((c == '}' || c == ']') && depth) {
            depth--;
        }
    }
    return false;
}

int json_check_values(const char *what, const char *text, size_t len, size_t max, struct err *err)
{
    bool in_string = false;
    size_t n = 1;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string)
            n += c == ',' || c == ':' || c == '[' || c == '{';
    }
    if (n <= max || !GUARD("json values"))
        return 0;
    return err_set(err, ERR_LIMIT, "%s: too many JSON values (at most %zu)", what, max);
}

static int json_parse_with(size_t flags, const char *what, const char *text, size_t len,
                           json_t **ret, struct err *err)
{
    json_error_t je;
    json_t *j;

    if (GUARD("json depth") && json_too_deep(text, len))
        return err_set(err, ERR_INVALID, "%s: JSON is nested more than %d levels deep", what,
                       JSON_DEPTH_LIMIT);
    flags |= JSON_DECODE_ANY | (GUARD("json keys") ? JSON_REJECT_DUPLICATES : 0);
    j = json_loadb(text, len, flags, &je);
    if (!j)
        return err_set(err, ERR_INVALID, "%s is not valid JSON: %s (line %d, column %d)", what,
                       je.text, je.line, je.column);
    *ret = j;
    return 0;
}

int json_parse(const char *what, const char *text, size_t len, json_t **ret, struct err *err)
{
    return json_parse_with(0, what, text, len, ret, err);
}

int json_parse_output(const char *what, const char *text, size_t len, json_t **ret, struct err *err)
{
    return json_parse_with(JSON_ALLOW_NUL, what, text, len, ret, err);
}

char *json_to_text(const json_t *j, bool canonical)
{
    char *s = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY | (canonical ? JSON_SORT_KEYS : 0));

    return s ? s : xstrdup("null");
}

static int json_read_value(const json_t *v, const char *full, const struct json_field *f,
                           struct err *err)
{
    static const char *const wanted[] = {"a string", "true or false", "a whole number >= 0",
                                         "an array", "an object",     "a value"};

    switch (f->type) {
    case JSON_FIELD_STRING:
        if (!json_is_string(v))
            break;
        *(const char **)f->ret = json_string_value(v);
        return 0;
    case JSON_FIELD_BOOL:
        if (!json_is_boolean(v))
            break;
        *(bool *)f->ret = json_is_true(v);
        return 0;
    case JSON_FIELD_U64:
        if (!json_is_integer(v) || json_integer_value(v) < 0)
            break;
        *(uint64_t *)f->ret = (uint64_t)json_integer_value(v);
        return 0;
    case JSON_FIELD_ARRAY:
        if (!json_is_array(v))
            break;
        *(const json_t **)f->ret = v;
        return 0;
    case JSON_FIELD_OBJECT:
        if (!json_is_object(v))
            break;
        *(const json_t **)f->ret = v;
        return 0;
    case JSON_FIELD_ANY:
        *(const json_t **)f->ret = v;
        return 0;
    }
    return err_set(err, ERR_INVALID, "field '%s' must be %s", full, wanted[f->type]);
}

static int json_unknown_field(const char *full, const char *key, const struct json_field *fields,
                              size_t n, struct err *err)
{
    const char *names[JSON_FIELDS_MAX];
    const char *near;

    n = MIN(n, (size_t)JSON_FIELDS_MAX);
    for (size_t i = 0; i < n; i++)
        names[i] = fields[i].name;
    err_set(err, ERR_INVALID, "unknown field '%s'", full);
    near = strv_nearest(key, names, n);
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

int json_read(const json_t *obj, const char *where, const struct json_field *fields, size_t n,
              struct err *err)
{
    const char *key;
    json_t *value;
    char full[256];

    if (!json_is_object(obj))
        return err_set(err, ERR_INVALID, "%s must be a JSON object",
                       where ? where : "the document");
    json_object_foreach ((json_t *)obj, key, value) {
        const struct json_field *f = NULL;
        int r;

        for (size_t i = 0; i < n && !f; i++)
            if (STREQ(fields[i].name, key))
                f = &fields[i];
        snprintf(full, sizeof(full), "%s%s%.100s", where ? where : "", where ? "." : "", key);
        if (!f && GUARD("known fields"))
            return json_unknown_field(full, key, fields, n, err);
        if (!f || json_is_null(value))
            continue;
        r = json_read_value(value, full, f, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int json_read_strv(const json_t *array, const char *where, char ***ret, struct err *err)
{
    _cleanup_strv_ char **v = xcalloc(json_array_size(array) + 1, sizeof(char *));
    json_t *item;
    size_t i;

    json_array_foreach ((json_t *)array, i, item) {
        if (!json_is_string(item))
            return err_set(err, ERR_INVALID, "field '%s[%zu]' must be a string", where, i);
        v[i] = xstrdup(json_string_value(item));
    }
    *ret = TAKE_PTR(v);
    return 0;
}

json_t *json_from_strv(char *const *v)
{
    json_t *a = json_array();

    for (; v && *v; v++)
        json_array_append_new(a, json_string(*v));
    return a;
}

json_t *json_from_text(const char *s)
{
    json_t *j = s ? json_string(s) : NULL;

    return j ? j : json_null();
}

json_t *json_from_time(uint64_t wall)
{
    char text[TIME_FORMAT_MAX];

    return wall ? json_string(time_format(wall, text)) : json_null();
}

json_t *json_from_err(const struct err *err)
{
    /* json_string() returns NULL for invalid UTF-8, which file names may hold. */
    json_t *msg = json_string(err->msg ? err->msg : "");
    json_t *e = json_object();

    json_object_set_new(e, "code", json_string(err_code_name(err->code)));
    json_object_set_new(e, "message", msg ? msg : json_string("(message is not valid UTF-8)"));
    if (err->hint)
        json_object_set_new(e, "hint", json_string(err->hint));
    return json_pack("{s:o}", "error", e);
}

int json_to_err(const json_t *doc, struct err *err)
{
    const json_t *e = json_object_get(doc, "error");
    const char *code = json_string_value(json_object_get(e, "code"));
    const char *msg = json_string_value(json_object_get(e, "message"));
    const char *hint = json_string_value(json_object_get(e, "hint"));
    int r;

    if (!code || !msg)
        return err_set(err, ERR_SYSTEM, "the daemon sent an error without a code or message");
    r = err_set(err, err_code_from_name(code), "%s", msg);
    return hint ? err_hint(err, "%s", hint) : r;
}

static void json_wipe_and_free(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

void json_need_memory(void)
{
    json_set_alloc_funcs(xmalloc, free);
}

void json_wipe_freed(void)
{
    json_set_alloc_funcs(xmalloc, json_wipe_and_free);
}
