#include "proto/files.h"

#include <string.h>

#include "lib/base/text.h"

#define T(name) FILES_BIT(FILES_TAG_##name)

/* clang-format off */
static const struct files_tag_row files_tags[FILES_TAG_END] = {
    [FILES_TAG_OP]            = {"op",            FILES_KIND_NUMBER, 1, FILES_OP_END - 1},
    [FILES_TAG_PATH]          = {"path",          FILES_KIND_PATH,   1, FILES_PATH_MAX},
    [FILES_TAG_TO]            = {"to",            FILES_KIND_PATH,   1, FILES_PATH_MAX},
    [FILES_TAG_OWNER]         = {"owner",         FILES_KIND_TEXT,   1, 64},
    [FILES_TAG_MODE]          = {"mode",          FILES_KIND_MODE,   0, 0777},
    [FILES_TAG_PARENTS]       = {"parents",       FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_ATOMIC]        = {"atomic",        FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_RECURSIVE]     = {"recursive",     FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_OVERWRITE]     = {"overwrite",     FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_FOLLOW]        = {"follow",        FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_MISSING_OK]    = {"missing_ok",    FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_DEPTH]         = {"depth",         FILES_KIND_NUMBER, 1, FILES_DEPTH_MAX},
    [FILES_TAG_LIMIT]         = {"limit",         FILES_KIND_NUMBER, 1, FILES_LIMIT_MAX},
    [FILES_TAG_AFTER]         = {"after",         FILES_KIND_CURSOR, 1, FILES_PATH_MAX},
    [FILES_TAG_GLOB]          = {"glob",          FILES_KIND_BYTES,  1, FILES_PATTERN_MAX},
    [FILES_TAG_TYPE]          = {"type",          FILES_KIND_TYPE,   0, FILES_TYPES - 1},
    [FILES_TAG_PATTERN]       = {"pattern",       FILES_KIND_BYTES,  1, FILES_PATTERN_MAX},
    [FILES_TAG_REGEX]         = {"regex",         FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_IGNORE_CASE]   = {"ignore_case",   FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_CONTEXT]       = {"context",       FILES_KIND_NUMBER, 0, FILES_CONTEXT_MAX},
    [FILES_TAG_OLD]           = {"old",           FILES_KIND_BYTES,  1, FILES_REQUEST_MAX},
    [FILES_TAG_NEW]           = {"new",           FILES_KIND_BYTES,  0, FILES_REQUEST_MAX},
    [FILES_TAG_COUNT]         = {"count",         FILES_KIND_NUMBER, 1, FILES_EDIT_MAX},
    [FILES_TAG_IF_MATCH]      = {"if_match",      FILES_KIND_TEXT,   1, FILES_ETAG_MAX},
    [FILES_TAG_IF_NONE_MATCH] = {"if_none_match", FILES_KIND_TEXT,   1, FILES_ETAG_MAX},
    [FILES_TAG_IF_RANGE]      = {"if_range",      FILES_KIND_TEXT,   1, FILES_ETAG_MAX},
    [FILES_TAG_FIRST]         = {"first",         FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_LAST]          = {"last",          FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_SUFFIX]        = {"suffix",        FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_NO_BODY]       = {"no_body",       FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_STATUS]        = {"status",        FILES_KIND_NUMBER, 200, 416},
    [FILES_TAG_LENGTH]        = {"length",        FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_SIZE]          = {"size",          FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_MODIFIED]      = {"modified",      FILES_KIND_TIME,   0, UINT64_MAX},
    [FILES_TAG_UID]           = {"uid",           FILES_KIND_NUMBER, 0, UINT32_MAX},
    [FILES_TAG_GID]           = {"gid",           FILES_KIND_NUMBER, 0, UINT32_MAX},
    [FILES_TAG_LINKS]         = {"links",         FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_TARGET]        = {"target",        FILES_KIND_BYTES,  0, FILES_PATH_MAX},
    [FILES_TAG_ETAG]          = {"etag",          FILES_KIND_TEXT,   1, FILES_ETAG_MAX},
    [FILES_TAG_LINE]          = {"line",          FILES_KIND_NUMBER, 1, INT64_MAX},
    [FILES_TAG_COLUMN]        = {"column",        FILES_KIND_NUMBER, 1, INT64_MAX},
    [FILES_TAG_TEXT]          = {"text",          FILES_KIND_BYTES,  0, FILES_MESSAGE_MAX},
    [FILES_TAG_CUT]           = {"cut",           FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_IS_CONTEXT]    = {"context",       FILES_KIND_FLAG,   0, 1},
    [FILES_TAG_EVENT]         = {"event",         FILES_KIND_EVENT,  0, FILES_EVENTS - 1},
    [FILES_TAG_CREATED]       = {"created",       FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_REMOVED]       = {"removed",       FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_ENTRIES]       = {"entries",       FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_BYTES]         = {"bytes",         FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_SKIPPED]       = {"skipped",       FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_REPLACED]      = {"replaced",      FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_SEARCHED]      = {"searched",      FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_MATCHES]       = {"matches",       FILES_KIND_NUMBER, 0, INT64_MAX},
    [FILES_TAG_PORT]          = {"port",          FILES_KIND_NUMBER, 1, UINT16_MAX},
    [FILES_TAG_ADDRESS]       = {"address",       FILES_KIND_TEXT,   1, 45},
    [FILES_TAG_PID]           = {"pid",           FILES_KIND_NUMBER, 1, INT32_MAX},
    [FILES_TAG_COMMAND]       = {"command",       FILES_KIND_BYTES,  0, 16},
};

static const struct files_op_row files_ops[FILES_OP_END] = {
    [FILES_READ]   = {"read",   T(PATH) | T(IF_MATCH) | T(IF_NONE_MATCH) | T(IF_RANGE) | T(FIRST) | T(LAST) |
                                T(SUFFIX) | T(NO_BODY), T(PATH), NULL, false},
    [FILES_WRITE]  = {"write",  T(PATH) | T(OWNER) | T(MODE) | T(PARENTS) | T(ATOMIC) | T(IF_MATCH) |
                                T(IF_NONE_MATCH), T(PATH), NULL, true},
    [FILES_STAT]   = {"stat",   T(PATH) | T(FOLLOW), T(PATH), NULL, false},
    [FILES_LIST]   = {"list",   T(PATH) | T(DEPTH) | T(LIMIT) | T(AFTER), T(PATH), "entries", false},
    [FILES_MKDIR]  = {"mkdir",  T(PATH) | T(PARENTS) | T(MODE) | T(OWNER), T(PATH), NULL, true},
    [FILES_REMOVE] = {"remove", T(PATH) | T(RECURSIVE) | T(MISSING_OK), T(PATH), NULL, true},
    [FILES_MOVE]   = {"move",   T(PATH) | T(TO) | T(OVERWRITE) | T(PARENTS), T(PATH) | T(TO), NULL, true},
    [FILES_COPY]   = {"copy",   T(PATH) | T(TO) | T(OVERWRITE) | T(PARENTS) | T(RECURSIVE), T(PATH) | T(TO), NULL, true},
    [FILES_CHMOD]  = {"chmod",  T(PATH) | T(MODE) | T(OWNER) | T(RECURSIVE), T(PATH), NULL, true},
    [FILES_FIND]   = {"find",   T(PATH) | T(GLOB) | T(TYPE) | T(DEPTH) | T(LIMIT) | T(AFTER), T(PATH), "entries", false},
    [FILES_GREP]   = {"grep",   T(PATH) | T(PATTERN) | T(REGEX) | T(IGNORE_CASE) | T(CONTEXT) | T(GLOB) | T(DEPTH) |
                                T(LIMIT) | T(AFTER), T(PATH) | T(PATTERN), "matches", false},
    [FILES_EDIT]   = {"edit",   T(PATH) | T(OLD) | T(NEW) | T(COUNT) | T(ATOMIC) | T(IF_MATCH), T(PATH) | T(OLD) | T(NEW),
                                NULL, true},
    [FILES_WATCH]  = {"watch",  T(PATH) | T(RECURSIVE), T(PATH), NULL, false},
    [FILES_PORTS]  = {"ports",  0, 0, "ports", false},
};
/* clang-format on */

const struct files_tag_row *files_tag_row(unsigned tag)
{
    return tag < FILES_TAG_END && files_tags[tag].name ? &files_tags[tag] : NULL;
}

const struct files_op_row *files_op_row(unsigned op)
{
    return op < FILES_OP_END && files_ops[op].name ? &files_ops[op] : NULL;
}

enum files_op files_op_find(const char *name)
{
    for (unsigned op = 1; op < FILES_OP_END; op++)
        if (STREQ(files_ops[op].name, name))
            return (enum files_op)op;
    return 0;
}

const char *files_type_name(unsigned type)
{
    static const char *const names[FILES_TYPES] = {"file", "folder", "link", "other"};

    return type < FILES_TYPES ? names[type] : NULL;
}

const char *files_event_name(unsigned event)
{
    static const char *const names[FILES_EVENTS] = {"ready",   "created", "modified", "attributes",
                                                    "removed", "moved",   "overflow", "gone"};

    return event < FILES_EVENTS ? names[event] : NULL;
}

/* ---- writing ---- */

static void files_put_be32(char p[static 4], uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (24 - 8 * i));
}

static uint32_t files_get_be32(const char *p)
{
    uint32_t v = 0;

    for (int i = 0; i < 4; i++)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

void files_put_head(char p[static FILES_HEAD_SIZE], enum files_type type, uint32_t length)
{
    p[0] = (char)type;
    files_put_be32(p + 1, length);
}

/* What does not fit is not written, and the length stays a lie that files_finish() finds. */
static void files_append(struct buf *w, const void *data, size_t len)
{
    if (buf_append(w, data, len) < 0)
        w->max = 0;
}

void files_begin(struct buf *w, enum files_type type)
{
    char head[FILES_HEAD_SIZE];

    files_put_head(head, type, 0);
    files_append(w, head, sizeof(head));
}

void files_put_bytes(struct buf *w, enum files_tag tag, const void *data, size_t len)
{
    char head[FILES_HEAD_SIZE] = {(char)tag};

    files_put_be32(head + 1, (uint32_t)len);
    files_append(w, head, sizeof(head));
    if (len)
        files_append(w, data, len);
}

void files_put_u64(struct buf *w, enum files_tag tag, uint64_t v)
{
    char value[8];

    files_put_be32(value, (uint32_t)(v >> 32));
    files_put_be32(value + 4, (uint32_t)v);
    files_put_bytes(w, tag, value, sizeof(value));
}

void files_put_str(struct buf *w, enum files_tag tag, const char *s)
{
    if (s)
        files_put_bytes(w, tag, s, strlen(s));
}

void files_put_flag(struct buf *w, enum files_tag tag, bool on)
{
    if (on)
        files_put_u64(w, tag, 1);
}

int files_finish(struct buf *w, struct err *err)
{
    if (!w->max)
        return err_set(err, ERR_LIMIT, "the message is too large");
    files_put_be32(buf_data(w) + 1, (uint32_t)(w->len - FILES_HEAD_SIZE));
    return 0;
}

/* ---- reading ---- */

static bool files_type_ok(unsigned type, bool from_helper)
{
    return from_helper ? type >= FILES_HEAD && type < FILES_HELPER_END
                       : type >= FILES_REQUEST && type < FILES_DAEMON_END;
}

int files_parse(const char *data, size_t len, bool from_helper, struct files_message *ret,
                struct err *err)
{
    unsigned type;
    uint32_t length;

    if (len < FILES_HEAD_SIZE)
        return 0;
    type = (unsigned char)data[0];
    length = files_get_be32(data + 1);
    if (!files_type_ok(type, from_helper))
        return err_set(err, ERR_INVALID, "files message: unknown type 0x%02x", type);
    if (length > (type == FILES_REQUEST ? FILES_REQUEST_MAX : FILES_MESSAGE_MAX))
        return err_set(err, ERR_INVALID, "files message: %u bytes are too many", length);
    if (len - FILES_HEAD_SIZE < length)
        return 0;
    *ret = (struct files_message){(enum files_type)type, data + FILES_HEAD_SIZE, length};
    return 1;
}

struct files_reader files_fields(const struct files_message *m)
{
    return (struct files_reader){m->data, m->data + m->length};
}

static bool files_is_number(enum files_kind kind)
{
    return kind == FILES_KIND_NUMBER || kind == FILES_KIND_FLAG || kind == FILES_KIND_MODE ||
           kind == FILES_KIND_TYPE || kind == FILES_KIND_EVENT || kind == FILES_KIND_TIME;
}

static int files_bad(struct err *err, const struct files_tag_row *row)
{
    return err_set(err, ERR_INVALID, "files message: field '%s' is invalid", row->name);
}

static int files_check_bytes(const struct files_tag_row *row, const struct files_field *f,
                             struct err *err)
{
    bool bytes = row->kind == FILES_KIND_BYTES;

    if (f->length < row->min || f->length > row->max)
        return files_bad(err, row);
    if (!bytes && memchr(f->data, 0, f->length))
        return files_bad(err, row);
    if (row->kind == FILES_KIND_PATH && f->data[0] != '/')
        return files_bad(err, row);
    if (row->kind == FILES_KIND_TEXT && !text_is_utf8(f->data, f->length))
        return files_bad(err, row);
    return 0;
}

static int files_check_number(const struct files_tag_row *row, struct files_field *f,
                              struct err *err)
{
    if (f->length != 8)
        return files_bad(err, row);
    f->u64 = (uint64_t)files_get_be32(f->data) << 32 | files_get_be32(f->data + 4);
    return f->u64 < row->min || f->u64 > row->max ? files_bad(err, row) : 0;
}

int files_next(struct files_reader *r, struct files_field *ret, struct err *err)
{
    size_t left = (size_t)(r->end - r->p);
    const struct files_tag_row *row;
    struct files_field f = {0};
    int code;

    if (!left)
        return 0;
    if (left < FILES_HEAD_SIZE)
        return err_set(err, ERR_INVALID, "files message: truncated field");
    row = files_tag_row((unsigned char)r->p[0]);
    if (!row)
        return err_set(err, ERR_INVALID, "files message: unknown field %u", (unsigned char)r->p[0]);
    f.tag = (enum files_tag)(unsigned char)r->p[0];
    f.data = r->p + FILES_HEAD_SIZE;
    f.length = files_get_be32(r->p + 1);
    if (f.length > left - FILES_HEAD_SIZE)
        return err_set(err, ERR_INVALID, "files message: field '%s' is truncated", row->name);
    code = files_is_number(row->kind) ? files_check_number(row, &f, err)
                                      : files_check_bytes(row, &f, err);
    if (code < 0)
        return code;
    r->p = f.data + f.length;
    *ret = f;
    return 1;
}

/* ---- entity tags ---- */

bool files_etag_listed(const char *list, const char *etag, bool weak)
{
    size_t len = strlen(etag);

    if (STREQ(list, "*"))
        return true;
    for (const char *p = list + strspn(list, " \t,"); *p; p += strspn(p, " \t,")) {
        bool is_weak = strncmp(p, "W/", 2) == 0;
        const char *end;

        p += is_weak ? 2 : 0;
        end = *p == '"' ? strchr(p + 1, '"') : NULL;
        if (!end)
            return false;
        end++;
        if ((size_t)(end - p) == len && memcmp(p, etag, len) == 0 && (weak || !is_weak))
            return true;
        p = end;
    }
    return false;
}
