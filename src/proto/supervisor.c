/*
 * See supervisor.h. One to eight zero bytes follow every value and bring the next field to a
 * multiple of 8. So each value is NUL-terminated in place and needs no copy. The reader checks the
 * padding, and the type of known tags; it skips fields with unknown tags.
 */
#include "proto/supervisor.h"

#include <string.h>

enum tag_type { TAG_ANY, TAG_U64, TAG_STR };

/* clang-format off */
static const uint8_t tag_types[] = {
    [SUP_TAG_VERSION]      = TAG_U64,
    [SUP_TAG_SANDBOX]      = TAG_STR,
    [SUP_TAG_PID]          = TAG_U64,
    [SUP_TAG_STATE]        = TAG_U64,
    [SUP_TAG_ERR_CODE]     = TAG_U64,
    [SUP_TAG_ERR_ERRNO]    = TAG_U64,
    [SUP_TAG_ERR_MSG]      = TAG_STR,
    [SUP_TAG_ERR_HINT]     = TAG_STR,
    [SUP_TAG_EXEC]         = TAG_STR,
    [SUP_TAG_ARG]          = TAG_STR,
    [SUP_TAG_ENV]          = TAG_STR,
    [SUP_TAG_CWD]          = TAG_STR,
    [SUP_TAG_USER]         = TAG_STR,
    [SUP_TAG_FLAGS]        = TAG_U64,
    [SUP_TAG_TIMEOUT]      = TAG_U64,
    [SUP_TAG_IDLE_TIMEOUT] = TAG_U64,
    [SUP_TAG_ROWS]         = TAG_U64,
    [SUP_TAG_COLS]         = TAG_U64,
    [SUP_TAG_STDOUT]       = TAG_U64,
    [SUP_TAG_STDERR]       = TAG_U64,
    [SUP_TAG_STDOUT_START] = TAG_U64,
    [SUP_TAG_STDERR_START] = TAG_U64,
    [SUP_TAG_RECORD]       = TAG_STR,
    [SUP_TAG_SIGNAL]       = TAG_U64,
    [SUP_TAG_CAUSE]        = TAG_U64,
    [SUP_TAG_GRACE]        = TAG_U64,
    [SUP_TAG_PORT]         = TAG_U64,
    [SUP_TAG_PATH]         = TAG_STR,
    [SUP_TAG_DIRECTION]    = TAG_U64,
    [SUP_TAG_STAT]         = TAG_STR,
    [SUP_TAG_HASH]         = TAG_STR,
    [SUP_TAG_UNENFORCED]   = TAG_U64,
    [SUP_TAG_OWNER]        = TAG_STR,
    [SUP_TAG_MODE]         = TAG_U64,
};
/* clang-format on */

static size_t supervisor_padding(size_t len)
{
    return 8 - len % 8;
}

void sup_begin(struct sup_writer *w, enum sup_msg_type type, uint64_t seq)
{
    struct sup_msg head = {.type = (uint16_t)type, .seq = seq};

    *w = (struct sup_writer){.buf = BUF_INIT(SUP_MSG_MAX)};
    if (buf_append(&w->buf, &head, sizeof(head)) < 0)
        w->overflow = 1;
}

void sup_put_bytes(struct sup_writer *w, uint16_t tag, const void *p, size_t len)
{
    struct sup_field field = {.tag = tag, .length = (uint32_t)len};
    size_t pad = supervisor_padding(len);
    char *dst;

    if (w->overflow)
        return;
    dst = len > w->buf.max ? NULL : buf_reserve(&w->buf, sizeof(field) + len + pad);
    if (!dst) {
        w->overflow = 1;
        return;
    }
    memcpy(dst, &field, sizeof(field));
    if (len)
        memcpy(dst + sizeof(field), p, len);
    memset(dst + sizeof(field) + len, 0, pad);
    buf_commit(&w->buf, sizeof(field) + len + pad);
}

void sup_put_u64(struct sup_writer *w, uint16_t tag, uint64_t v)
{
    sup_put_bytes(w, tag, &v, sizeof(v));
}

void sup_put_str(struct sup_writer *w, uint16_t tag, const char *s)
{
    if (s)
        sup_put_bytes(w, tag, s, strlen(s));
}

void sup_put_stat(struct sup_writer *w, const char *name, uint64_t value)
{
    char text[64];

    snprintf(text, sizeof(text), "%s=%llu", name, (unsigned long long)value);
    sup_put_str(w, SUP_TAG_STAT, text);
}

void sup_put_err(struct sup_writer *w, const struct err *err)
{
    sup_put_u64(w, SUP_TAG_ERR_CODE, err->code);
    if (err->errnum)
        sup_put_u64(w, SUP_TAG_ERR_ERRNO, (uint64_t)err->errnum);
    sup_put_str(w, SUP_TAG_ERR_MSG, err->msg);
    sup_put_str(w, SUP_TAG_ERR_HINT, err->hint);
}

void sup_put_copy(struct sup_writer *w, const struct sup_copy *c)
{
    sup_put_str(w, SUP_TAG_PATH, c->path);
    sup_put_u64(w, SUP_TAG_DIRECTION, c->into);
    sup_put_str(w, SUP_TAG_USER, c->user);
    sup_put_str(w, SUP_TAG_OWNER, c->owner);
    if (c->flags & SUP_COPY_MODE)
        sup_put_u64(w, SUP_TAG_MODE, c->mode);
    if (c->flags)
        sup_put_u64(w, SUP_TAG_FLAGS, c->flags);
}

int sup_finish(struct sup_writer *w, struct err *err)
{
    uint32_t length;

    if (w->overflow)
        return err_set(err, ERR_LIMIT, "supervisor message: exceeds %d bytes", SUP_MSG_MAX);
    length = (uint32_t)(w->buf.len - sizeof(struct sup_msg));
    memcpy(buf_data(&w->buf) + offsetof(struct sup_msg, length), &length, sizeof(length));
    return 0;
}

enum sup_msg_type sup_type(const struct sup_writer *w)
{
    struct sup_msg head;

    memcpy(&head, buf_data(&w->buf), sizeof(head));
    return (enum sup_msg_type)head.type;
}

void sup_writer_done(struct sup_writer *w)
{
    buf_done(&w->buf);
}

/* The minor version that brought a message type; 0: the first one. */
static const uint8_t since[SUP_MSG_TYPE_MAX] = {
    [SUP_PLAN] = 1,    [SUP_LISTENER] = 2,   [SUP_EXEC_FED] = 3, [SUP_COPY_AS] = 4,
    [SUP_SETTLED] = 5, [SUP_EXEC_LARGE] = 6, [SUP_FILES] = 7,
};

static int supervisor_refuse_older(const char *what, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED,
            "the sandbox was started by an older version of ripcord, which cannot %s", what);
    return err_hint(err, "Stop the sandbox and start it again.");
}

int sup_check_known(enum sup_msg_type type, uint32_t minor, struct err *err)
{
    char large[64];

    if (type < SUP_MSG_TYPE_MAX && since[type] <= minor)
        return 0;
    snprintf(large, sizeof(large), "run a command of more than %d KiB", SUP_MSG_MAX >> 10);
    return supervisor_refuse_older(type == SUP_EXEC_LARGE ? large : "do this", err);
}

int sup_check_merged(uint32_t minor, struct err *err)
{
    return minor >= 8 ? 0 : supervisor_refuse_older("merge stderr into stdout", err);
}

int sup_read(struct sup_reader *r, const void *packet, size_t len, struct err *err)
{
    struct sup_reader out;

    if (len < sizeof(out.head))
        return err_set(err, ERR_INVALID, "supervisor message: %zu bytes are less than a header",
                       len);
    memcpy(&out.head, packet, sizeof(out.head));
    if (out.head.length != len - sizeof(out.head))
        return err_set(err, ERR_INVALID,
                       "supervisor message: the header says %u bytes, the packet has %zu",
                       out.head.length, len - sizeof(out.head));
    out.p = (const char *)packet + sizeof(out.head);
    out.end = out.p + out.head.length;
    *r = out;
    return 0;
}

static int supervisor_check_value(const struct sup_value *v, struct err *err)
{
    enum tag_type type = v->tag < ARRAY_SIZE(tag_types) ? tag_types[v->tag] : TAG_ANY;

    if (type == TAG_U64 && v->length != sizeof(v->u64))
        return err_set(err, ERR_INVALID, "supervisor message: field %u: invalid number (%u bytes)",
                       v->tag, v->length);
    if (type == TAG_STR && memchr(v->data, 0, v->length))
        return err_set(err, ERR_INVALID, "supervisor message: field %u: contains a NUL", v->tag);
    return 0;
}

int sup_next(struct sup_reader *r, struct sup_value *ret, struct err *err)
{
    size_t left = (size_t)(r->end - r->p), pad;
    struct sup_field field;
    struct sup_value v;
    int code;

    if (!left)
        return 0;
    if (left < sizeof(field))
        return err_set(err, ERR_INVALID, "supervisor message: truncated field");
    memcpy(&field, r->p, sizeof(field));
    left -= sizeof(field);
    pad = supervisor_padding(field.length);
    if (field.length > left || pad > left - field.length)
        return err_set(err, ERR_INVALID, "supervisor message: field %u: %u bytes, but %zu are left",
                       field.tag, field.length, left);
    v = (struct sup_value){.tag = field.tag, .data = r->p + sizeof(field), .length = field.length};
    for (size_t i = 0; i < pad; i++)
        if (v.data[v.length + i])
            return err_set(err, ERR_INVALID, "supervisor message: field %u: padding is not zero",
                           field.tag);
    if (v.length == sizeof(v.u64))
        memcpy(&v.u64, v.data, sizeof(v.u64));
    code = supervisor_check_value(&v, err);
    if (code < 0)
        return code;
    r->p = v.data + v.length + pad;
    *ret = v;
    return 1;
}

int sup_read_err(const void *packet, size_t len, struct err *err)
{
    const char *msg = NULL, *hint = NULL;
    uint64_t code = ERR_NONE, errnum = 0;
    struct sup_reader r = {0};
    struct sup_value v = {0};
    int n;

    n = sup_read(&r, packet, len, err);
    if (n < 0)
        return n;
    while ((n = sup_next(&r, &v, err)) > 0) {
        if (v.tag == SUP_TAG_ERR_CODE)
            code = v.u64;
        else if (v.tag == SUP_TAG_ERR_ERRNO)
            errnum = v.u64;
        else if (v.tag == SUP_TAG_ERR_MSG)
            msg = v.data;
        else if (v.tag == SUP_TAG_ERR_HINT)
            hint = v.data;
    }
    if (n < 0 || code == ERR_NONE)
        return n;
    n = err_set(err, code < ERR_CODE_MAX ? (enum err_code)code : ERR_SYSTEM, "%s",
                msg ? msg : "unknown error");
    if (err && errnum <= INT32_MAX)
        err->errnum = (int)errnum;
    if (hint)
        err_hint(err, "%s", hint);
    return n;
}
