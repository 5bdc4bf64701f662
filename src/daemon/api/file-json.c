#include "daemon/api/file-json.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

enum { KEY_MAX = 40 };

static const char *file_json_base64_key(const char *name, char key[static KEY_MAX])
{
    snprintf(key, KEY_MAX, "%s_base64", name);
    return key;
}

/* ---- requests ---- */

static int file_json_bad(struct err *err, const char *name, const char *problem)
{
    return err_set(err, ERR_INVALID, "field '%s': %s", name, problem);
}

static int file_json_check_bytes(const struct files_tag_row *row, const char *key, const char *data,
                                 size_t len, struct err *err)
{
    if (len > row->max)
        return err_set(err, ERR_INVALID, "field '%s': too long (at most %llu bytes)", key,
                       (unsigned long long)row->max);
    if (len < row->min)
        return file_json_bad(err, key, "must not be empty");
    if (row->kind != FILES_KIND_BYTES && memchr(data, 0, len))
        return file_json_bad(err, key, "must not contain a NUL");
    if (row->kind == FILES_KIND_PATH && data[0] != '/')
        return err_set(err, ERR_INVALID, "field '%s': '%.80s' must be absolute", key, data);
    return 0;
}

/* Text under `key`, or base64. */
static int file_json_take_bytes(enum files_tag tag, const char *key, const json_t *v, bool base64,
                                struct buf *w, struct err *err)
{
    const struct files_tag_row *row = files_tag_row(tag);
    _cleanup_buf_ struct buf bytes = BUF_INIT(FILES_REQUEST_MAX);
    const char *text = json_string_value(v);
    size_t len = json_string_length(v);
    int r;

    if (!text)
        return file_json_bad(err, key, "must be a string");
    if (base64) {
        r = base64_decode(&bytes, text, len, err);
        if (r < 0)
            return err_wrap(err, "field '%s'", key);
        text = buf_data(&bytes);
        len = bytes.len;
    }
    r = file_json_check_bytes(row, key, text, len, err);
    if (r >= 0)
        files_put_bytes(w, tag, text, len);
    return r;
}

static int file_json_take_number(enum files_tag tag, const json_t *v, struct buf *w,
                                 struct err *err)
{
    const struct files_tag_row *row = files_tag_row(tag);
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v))
        return file_json_bad(err, row->name, "must be a number");
    if (n < 0 || (uint64_t)n < row->min || (uint64_t)n > row->max)
        return err_set(err, ERR_INVALID, "field '%s': must be between %llu and %llu", row->name,
                       (unsigned long long)row->min, (unsigned long long)row->max);
    files_put_u64(w, tag, (uint64_t)n);
    return 0;
}

static int file_json_take_mode(const json_t *v, struct buf *w, struct err *err)
{
    uint64_t mode;
    int r;

    if (!json_is_string(v))
        return file_json_bad(err, "mode", "must be a string of octal digits");
    r = parse_mode(json_string_value(v), &mode, err);
    if (r < 0)
        return err_wrap(err, "field 'mode'");
    files_put_u64(w, FILES_TAG_MODE, mode);
    return 0;
}

static int file_json_take_type(const json_t *v, struct buf *w, struct err *err)
{
    const char *word = json_string_value(v);

    for (unsigned t = 0; word && t < FILES_TYPES; t++) {
        if (!STREQ(files_type_name(t), word))
            continue;
        files_put_u64(w, FILES_TAG_TYPE, t);
        return 0;
    }
    return file_json_bad(err, "type", "must be 'file', 'folder', 'link' or 'other'");
}

static int file_json_take_owner(const json_t *v, struct buf *w, struct err *err)
{
    const char *who = json_string_value(v);
    int r = who ? parse_user(who, err) : file_json_bad(err, "owner", "must be a string");

    if (r < 0)
        return who ? err_wrap(err, "field 'owner'") : r;
    files_put_str(w, FILES_TAG_OWNER, who);
    return 0;
}

static int file_json_take_value(enum files_tag tag, const char *key, const json_t *v, bool base64,
                                struct buf *w, struct err *err)
{
    const struct files_tag_row *row = files_tag_row(tag);

    if (tag == FILES_TAG_OWNER)
        return file_json_take_owner(v, w, err);
    switch (row->kind) {
    case FILES_KIND_NUMBER:
        return file_json_take_number(tag, v, w, err);
    case FILES_KIND_FLAG:
        if (!json_is_boolean(v))
            return file_json_bad(err, row->name, "must be true or false");
        files_put_flag(w, tag, json_is_true(v));
        return 0;
    case FILES_KIND_MODE:
        return file_json_take_mode(v, w, err);
    case FILES_KIND_TYPE:
        return file_json_take_type(v, w, err);
    case FILES_KIND_CURSOR:
        return file_json_take_bytes(tag, key, v, true, w, err);
    case FILES_KIND_PATH:
    case FILES_KIND_BYTES:
    case FILES_KIND_TEXT:
        return file_json_take_bytes(tag, key, v, base64, w, err);
    case FILES_KIND_EVENT:
    case FILES_KIND_TIME:
        break;
    }
    return file_json_bad(err, row->name, "is not allowed in a request");
}

/* Whether the value belongs to this field, as `key` or as `key_base64`. */
static bool file_json_is_key(enum files_tag tag, const char *key, bool *ret_base64)
{
    const struct files_tag_row *row = files_tag_row(tag);
    char alike[KEY_MAX];

    *ret_base64 = false;
    if (STREQ(row->name, key))
        return true;
    *ret_base64 = true;
    return (row->kind == FILES_KIND_BYTES || row->kind == FILES_KIND_PATH) &&
           STREQ(file_json_base64_key(row->name, alike), key);
}

static int file_json_unknown(uint64_t allowed, const char *key, struct err *err)
{
    const char *names[FILES_TAG_END];
    const char *near;
    size_t n = 0;

    for (unsigned t = 1; t < FILES_TAG_END; t++)
        if (allowed & FILES_BIT(t))
            names[n++] = files_tag_row(t)->name;
    err_set(err, ERR_INVALID, "unknown field '%.60s'", key);
    near = strv_nearest(key, names, n);
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

/* One key of the body; *given collects the fields. */
static int file_json_take_key(uint64_t allowed, const char *key, const json_t *v, struct buf *w,
                              uint64_t *given, struct err *err)
{
    bool base64;

    for (unsigned t = 1; t < FILES_TAG_END; t++) {
        if (!(allowed & FILES_BIT(t)) || !file_json_is_key((enum files_tag)t, key, &base64))
            continue;
        if (*given & FILES_BIT(t))
            return err_set(err, ERR_INVALID, "fields '%s' and '%s_base64': give only one",
                           files_tag_row(t)->name, files_tag_row(t)->name);
        *given |= FILES_BIT(t);
        return file_json_take_value((enum files_tag)t, key, v, base64, w, err);
    }
    return file_json_unknown(allowed, key, err);
}

static int file_json_missing(uint64_t missing, struct err *err)
{
    for (unsigned t = 1; t < FILES_TAG_END; t++)
        if (missing & FILES_BIT(t))
            return err_set(err, ERR_INVALID, "field '%s' is missing", files_tag_row(t)->name);
    return -ERR_INVALID;
}

/* ---- edits ---- */

static int file_json_take_edit(const json_t *edit, struct buf *w, struct err *err)
{
    static const enum files_tag tags[] = {FILES_TAG_OLD, FILES_TAG_NEW, FILES_TAG_COUNT};
    const uint64_t all = FILES_BIT(FILES_TAG_OLD) | FILES_BIT(FILES_TAG_NEW) |
                         FILES_BIT(FILES_TAG_COUNT),
                   needed = all & ~FILES_BIT(FILES_TAG_COUNT);
    uint64_t given = 0;
    const char *key;
    json_t *v;

    if (!json_is_object(edit))
        return file_json_bad(err, "edits", "must hold objects");
    /* In this order, which the helper expects; whatever else is in it is found below. */
    for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
        json_object_foreach ((json_t *)edit, key, v) {
            bool base64;
            int r = file_json_is_key(tags[i], key, &base64)
                        ? file_json_take_key(FILES_BIT(tags[i]), key, v, w, &given, err)
                        : 0;

            if (r < 0)
                return r;
        }
    }
    json_object_foreach ((json_t *)edit, key, v) {
        bool base64, known = false;

        for (size_t i = 0; i < ARRAY_SIZE(tags); i++)
            known |= file_json_is_key(tags[i], key, &base64);
        if (!known)
            return file_json_unknown(all, key, err);
    }
    return (given & needed) == needed ? 0 : file_json_missing(needed & ~given, err);
}

static int file_json_take_edits(const json_t *edits, struct buf *w, struct err *err)
{
    size_t n = json_array_size(edits);

    if (n < 1 || n > FILES_EDITS_MAX)
        return err_set(err, ERR_INVALID, "field 'edits': must be an array of 1 to %d edits",
                       FILES_EDITS_MAX);
    for (size_t i = 0; i < n; i++) {
        int r = file_json_take_edit(json_array_get(edits, i), w, err);

        if (r < 0)
            return err_wrap(err, "edits[%zu]", i);
    }
    return 0;
}

/* ---- the whole request ---- */

static int file_json_take_user(const json_t *v, char **ret, struct err *err)
{
    const char *who = json_string_value(v);
    int r;

    if (!who)
        return file_json_bad(err, "user", "must be a string");
    r = parse_user(who, err);
    if (r < 0)
        return err_wrap(err, "field 'user'");
    *ret = xstrdup(who);
    return 0;
}

int file_json_request(enum files_op op, const json_t *body, struct buf *w, char **ret_user,
                      struct err *err)
{
    const struct files_op_row *row = files_op_row(op);
    const uint64_t texts =
        FILES_BIT(FILES_TAG_OLD) | FILES_BIT(FILES_TAG_NEW) | FILES_BIT(FILES_TAG_COUNT);
    uint64_t given = 0;
    const char *key;
    json_t *v;
    int r = 0;

    json_object_foreach ((json_t *)body, key, v) {
        if (STREQ(key, "user"))
            r = file_json_take_user(v, ret_user, err);
        else if (op == FILES_EDIT && STREQ(key, "edits"))
            r = file_json_take_edits(v, w, err), given |= texts;
        else
            r = file_json_take_key(row->allowed & ~texts, key, v, w, &given, err);
        if (r < 0)
            return r;
    }
    if (op == FILES_EDIT && !(given & texts))
        return err_set(err, ERR_INVALID, "field 'edits' is missing");
    return (given & row->required) == row->required
               ? 0
               : file_json_missing(row->required & ~given, err);
}

/* ---- answers ---- */

void file_json_put_bytes(json_t *o, const char *key, const char *data, size_t len)
{
    _cleanup_free_ char *text = NULL;
    char other[KEY_MAX];

    if (text_is_utf8(data, len)) {
        json_object_set_new(o, key, json_stringn_nocheck(data, len));
        return;
    }
    text = base64_encode(data, len);
    json_object_set_new(o, file_json_base64_key(key, other), json_string(text));
}

static void file_json_put_field(json_t *o, const struct files_field *f)
{
    const struct files_tag_row *row = files_tag_row(f->tag);
    _cleanup_free_ char *text = NULL;
    char mode[8];

    switch (row->kind) {
    case FILES_KIND_NUMBER:
        json_object_set_new(o, row->name, json_integer((json_int_t)f->u64));
        break;
    case FILES_KIND_FLAG:
        json_object_set_new(o, row->name, json_true());
        break;
    case FILES_KIND_MODE:
        snprintf(mode, sizeof(mode), "%04o", (unsigned)f->u64);
        json_object_set_new(o, row->name, json_string(mode));
        break;
    case FILES_KIND_TYPE:
        json_object_set_new(o, row->name, json_string(files_type_name((unsigned)f->u64)));
        break;
    case FILES_KIND_EVENT:
        json_object_set_new(o, row->name, json_string(files_event_name((unsigned)f->u64)));
        break;
    case FILES_KIND_TIME:
        json_object_set_new(o, row->name, json_from_time(f->u64 / 1000));
        break;
    case FILES_KIND_CURSOR:
        text = base64_encode(f->data, f->length);
        json_object_set_new(o, row->name, json_string(text));
        break;
    case FILES_KIND_PATH:
    case FILES_KIND_BYTES:
    case FILES_KIND_TEXT:
        file_json_put_bytes(o, row->name, f->data, f->length);
        break;
    }
}

int file_json_answer(const struct files_message *m, json_t *o, struct err *err)
{
    struct files_reader r = files_fields(m);
    struct files_field f;
    int n;

    while ((n = files_next(&r, &f, err)) > 0)
        if (f.tag != FILES_TAG_STATUS)
            file_json_put_field(o, &f);
    return n;
}
