/*
 * See guest.h. One table has the limits of each type's payload, so the functions that parse a frame
 * need not check lengths again. One small cursor writes and reads the fixed payloads.
 */
#include "proto/guest.h"

#include <endian.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

#define HELLO_MAGIC "RIPGUEST"

enum {
    MAGIC_SIZE = sizeof(HELLO_MAGIC) - 1,
    HELLO_SIZE = MAGIC_SIZE + 2 + 2 + 4,
    FAILED_MIN = 4 + 4 + 2,
    FAILED_MAX = FAILED_MIN + 2 * GUEST_TEXT_MAX,
    EXIT_NUMBERS = 13,
    EXIT_SIZE = 4 + 4 + EXIT_NUMBERS * 8,
    DONE_SIZE = 3 * 8,
    FIELD_HEAD = 1 + 4,
    ID_SIZE = 4,
    ACK_SIZE = ID_SIZE + 4,
};

struct bounds {
    uint32_t min, max;
};

/* clang-format off */
static const struct bounds relay_bounds[] = {
    [GUEST_SPEC]      = {1, GUEST_PAYLOAD_MAX},
    [GUEST_RUN]       = {0, 0},
    [GUEST_STDIN]     = {1, GUEST_PAYLOAD_MAX},
    [GUEST_STDIN_EOF] = {0, 0},
    [GUEST_SIGNAL]    = {1, 1},
    [GUEST_RESIZE]    = {4, 4},
    [GUEST_KILL]      = {1, 1},
    [GUEST_ANSWER_DATA]  = {ID_SIZE + 1, GUEST_PAYLOAD_MAX},
    [GUEST_ANSWER_EOF]   = {ID_SIZE, ID_SIZE},
    [GUEST_ANSWER_CLOSE] = {ID_SIZE, ID_SIZE},
    [GUEST_ANSWER_ACK]   = {ACK_SIZE, ACK_SIZE},
};

static const struct bounds guest_bounds[] = {
    [GUEST_HELLO        - GUEST_HELLO] = {HELLO_SIZE, HELLO_SIZE},
    [GUEST_STARTED      - GUEST_HELLO] = {4, 4},
    [GUEST_FAILED       - GUEST_HELLO] = {FAILED_MIN, FAILED_MAX},
    [GUEST_STDIN_ACK    - GUEST_HELLO] = {4, 4},
    [GUEST_STDIN_CLOSED - GUEST_HELLO] = {0, 0},
    [GUEST_STDOUT       - GUEST_HELLO] = {1, GUEST_PAYLOAD_MAX},
    [GUEST_STDERR       - GUEST_HELLO] = {1, GUEST_PAYLOAD_MAX},
    [GUEST_STDOUT_EOF   - GUEST_HELLO] = {0, 0},
    [GUEST_EXIT         - GUEST_HELLO] = {EXIT_SIZE, EXIT_SIZE},
    [GUEST_DONE         - GUEST_HELLO] = {DONE_SIZE, DONE_SIZE},
    [GUEST_CALL_OPEN    - GUEST_HELLO] = {ID_SIZE, ID_SIZE},
    [GUEST_CALL_DATA    - GUEST_HELLO] = {ID_SIZE + 1, GUEST_PAYLOAD_MAX},
    [GUEST_CALL_EOF     - GUEST_HELLO] = {ID_SIZE, ID_SIZE},
    [GUEST_CALL_CLOSE   - GUEST_HELLO] = {ID_SIZE, ID_SIZE},
    [GUEST_CALL_ACK     - GUEST_HELLO] = {ACK_SIZE, ACK_SIZE},
};
/* clang-format on */

_Static_assert(ARRAY_SIZE(relay_bounds) == GUEST_RELAY_END, "a type without bounds");
_Static_assert(ARRAY_SIZE(guest_bounds) == GUEST_GUEST_END - GUEST_HELLO, "a type without bounds");

/* NULL for a type that this side does not send. */
static const struct bounds *guest_find_bounds(unsigned type, enum guest_side from)
{
    if (from == GUEST_SIDE_RELAY)
        return type >= GUEST_SPEC && type < GUEST_RELAY_END ? &relay_bounds[type] : NULL;
    return type >= GUEST_HELLO && type < GUEST_GUEST_END ? &guest_bounds[type - GUEST_HELLO] : NULL;
}

/* ---- numbers ---- */

static char *guest_put16(char *p, uint16_t v)
{
    uint16_t be = htobe16(v);

    memcpy(p, &be, sizeof(be));
    return p + sizeof(be);
}

static char *guest_put32(char *p, uint32_t v)
{
    uint32_t be = htobe32(v);

    memcpy(p, &be, sizeof(be));
    return p + sizeof(be);
}

static char *guest_put64(char *p, uint64_t v)
{
    uint64_t be = htobe64(v);

    memcpy(p, &be, sizeof(be));
    return p + sizeof(be);
}

static uint16_t guest_get16(const char *p)
{
    uint16_t be;

    memcpy(&be, p, sizeof(be));
    return be16toh(be);
}

static uint32_t guest_get32(const char *p)
{
    uint32_t be;

    memcpy(&be, p, sizeof(be));
    return be32toh(be);
}

static uint64_t guest_get64(const char *p)
{
    uint64_t be;

    memcpy(&be, p, sizeof(be));
    return be64toh(be);
}

/* ---- frames ---- */

void guest_put_head(char p[static GUEST_HEAD_SIZE], enum guest_type type, uint32_t length)
{
    p[0] = (char)type;
    guest_put32(p + 1, length);
}

int guest_put(struct buf *b, enum guest_type type, const void *data, size_t len)
{
    char *p = len > GUEST_PAYLOAD_MAX ? NULL : buf_reserve(b, GUEST_HEAD_SIZE + len);

    if (!p)
        return -ERR_LIMIT;
    guest_put_head(p, type, (uint32_t)len);
    if (len)
        memcpy(p + GUEST_HEAD_SIZE, data, len);
    buf_commit(b, GUEST_HEAD_SIZE + len);
    return 0;
}

int guest_parse(const char *data, size_t len, enum guest_side from, struct guest_frame *ret,
                size_t *used, struct err *err)
{
    const struct bounds *bounds;
    unsigned type;
    uint32_t length;

    if (len == 0)
        return 0;
    type = (unsigned char)data[0]; /* the type is checked before the length has arrived */
    bounds = guest_find_bounds(type, from);
    if (!bounds)
        return err_set(err, ERR_INVALID, "guest protocol: unknown frame type 0x%02x", type);
    if (len < GUEST_HEAD_SIZE)
        return 0;
    length = guest_get32(data + 1);
    if (length < bounds->min || length > bounds->max)
        return err_set(err, ERR_INVALID, "guest protocol: frame 0x%02x: invalid length (%u bytes)",
                       type, length);
    if (len - GUEST_HEAD_SIZE < length)
        return 0;
    *ret = (struct guest_frame){
        .type = (enum guest_type)type, .length = length, .data = data + GUEST_HEAD_SIZE};
    *used = GUEST_HEAD_SIZE + length;
    return 1;
}

/* ---- the spec ---- */

void guest_spec_done(struct guest_spec *s)
{
    strv_free(s->argv);
    strv_free(s->env);
    free(s->cwd);
    for (size_t i = 0; i < s->n_secrets; i++) {
        explicit_bzero(s->secrets[i].value, s->secrets[i].len);
        free(s->secrets[i].value);
        free(s->secrets[i].name);
    }
    free(s->secrets);
    *s = (struct guest_spec){0};
}

static int guest_put_field(struct buf *b, enum guest_spec_tag tag, const void *value, size_t len)
{
    char head[FIELD_HEAD] = {(char)tag};

    if (len > GUEST_SPEC_MAX)
        return -ERR_LIMIT;
    guest_put32(head + 1, (uint32_t)len);
    if (buf_append(b, head, sizeof(head)) < 0)
        return -ERR_LIMIT;
    return buf_append(b, value, len);
}

static int guest_put_strings(struct buf *b, enum guest_spec_tag tag, char *const *v)
{
    int r = 0;

    for (; v && *v && r == 0; v++)
        r = guest_put_field(b, tag, *v, strlen(*v));
    return r;
}

static int guest_put_secret(struct buf *b, const struct guest_secret *s)
{
    size_t name = strlen(s->name) + 1, len = name + s->len;
    char *value = xmalloc(len);
    int r;

    memcpy(value, s->name, name);
    if (s->len)
        memcpy(value + name, s->value, s->len);
    r = guest_put_field(b, GUEST_TAG_SECRET, value, len);
    explicit_bzero(value, len);
    free(value);
    return r;
}

static int guest_put_fields(struct buf *b, const struct guest_spec *s)
{
    char flags[4], size[4];
    int r;

    guest_put32(flags, s->flags);
    guest_put16(guest_put16(size, s->rows), s->cols);
    r = guest_put_strings(b, GUEST_TAG_ARG, s->argv);
    if (r == 0)
        r = guest_put_strings(b, GUEST_TAG_ENV, s->env);
    if (r == 0 && s->cwd)
        r = guest_put_field(b, GUEST_TAG_CWD, s->cwd, strlen(s->cwd));
    if (r == 0)
        r = guest_put_field(b, GUEST_TAG_FLAGS, flags, sizeof(flags));
    if (r == 0 && s->rows && s->cols)
        r = guest_put_field(b, GUEST_TAG_SIZE, size, sizeof(size));
    for (size_t i = 0; r == 0 && i < s->n_secrets; i++)
        r = guest_put_secret(b, &s->secrets[i]);
    return r;
}

static int guest_check_spec(const struct guest_spec *s, size_t bytes, uint16_t minor,
                            struct err *err)
{
    size_t items = strv_len(s->argv) + strv_len(s->env);
    size_t size = command_size(s->argv) + command_size(s->env);

    if (size > COMMAND_MAX || command_oversized(s->argv) || command_oversized(s->env)) {
        err_set(err, ERR_LIMIT,
                "the command and its environment are too large for Linux (%zu bytes, at most %d)",
                size, COMMAND_MAX);
        err_hint(err, COMMAND_SIZE_HINT);
        return -ERR_LIMIT;
    }
    if (s->flags & GUEST_SPEC_MERGED && minor < GUEST_MINOR_MERGED) {
        err_set(err, ERR_UNSUPPORTED,
                "the program inside the sandbox is too old to merge stderr into stdout");
        return err_hint(err, "Stop the sandbox and start it again.");
    }
    if (minor >= GUEST_MINOR_LARGE || (bytes <= GUEST_OLD_SPEC_MAX && items <= GUEST_OLD_ITEMS_MAX))
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "the program inside the sandbox is too old for a command of more than %d KiB",
            GUEST_OLD_SPEC_MAX >> 10);
    err_hint(err, "Stop the sandbox and start it again.");
    return -ERR_UNSUPPORTED;
}

int guest_put_spec(struct buf *b, const struct guest_spec *s, uint16_t minor, struct err *err)
{
    _cleanup_wipe_ struct buf fields = BUF_INIT(GUEST_SPEC_MAX);
    size_t before = b->len;
    int r = guest_put_fields(&fields, s), checked = guest_check_spec(s, fields.len, minor, err);

    if (checked < 0)
        return checked;
    for (size_t at = 0; r == 0 && at < fields.len; at += GUEST_PAYLOAD_MAX)
        r = guest_put(b, GUEST_SPEC, buf_data(&fields) + at,
                      MIN(fields.len - at, (size_t)GUEST_PAYLOAD_MAX));
    if (r == 0)
        r = guest_put(b, GUEST_RUN, NULL, 0);
    if (r == 0)
        return 0;
    buf_truncate(b, before);
    return err_set(err, ERR_LIMIT, "command, environment and secrets exceed %d KiB",
                   GUEST_SPEC_MAX >> 10);
}

int guest_collect_spec(struct buf *fields, const struct guest_frame *f, struct err *err)
{
    if (fields->len + f->length > GUEST_SPEC_MAX || buf_append(fields, f->data, f->length) < 0)
        return err_set(err, ERR_LIMIT, "guest protocol: spec exceeds %d bytes", GUEST_SPEC_MAX);
    return 0;
}

struct guest_field {
    uint8_t tag;
    uint32_t length;
    const char *value;
};

static int guest_bad_field(const struct guest_field *f, const char *why, struct err *err)
{
    return err_set(err, ERR_INVALID, "guest protocol: spec field %u: %s", f->tag, why);
}

/* The strings of a spec while its fields are read. */
struct guest_strings {
    struct strv_list args, vars;
};

static int guest_take_string(struct guest_spec *s, struct guest_strings *strings,
                             const struct guest_field *f, struct err *err)
{
    _cleanup_free_ char *text = NULL;

    if (f->length >= COMMAND_STRING_MAX)
        return err_set(err, ERR_LIMIT, "guest protocol: spec field %u: %u bytes, at most %d",
                       f->tag, f->length, COMMAND_STRING_MAX - 1);
    if (memchr(f->value, 0, f->length))
        return guest_bad_field(f, "contains a NUL", err);
    text = xstrndup(f->value, f->length);
    if (f->tag == GUEST_TAG_ENV && parse_env(text, NULL) < 0)
        return guest_bad_field(f, "not NAME=VALUE", err);
    if (f->tag == GUEST_TAG_CWD && (s->cwd || *text != '/'))
        return guest_bad_field(f, s->cwd ? "given twice" : "not absolute", err);
    if (f->tag == GUEST_TAG_ARG)
        strv_list_push(&strings->args, TAKE_PTR(text));
    else if (f->tag == GUEST_TAG_ENV)
        strv_list_push(&strings->vars, TAKE_PTR(text));
    else
        s->cwd = TAKE_PTR(text);
    s->argv = strings->args.v; /* which frees them */
    s->env = strings->vars.v;
    return 0;
}

static int guest_take_secret(struct guest_spec *s, const struct guest_field *f, struct err *err)
{
    size_t name = strnlen(f->value, f->length);
    struct guest_secret *secret;

    if (name == f->length || parse_secret_name(f->value, NULL) < 0)
        return guest_bad_field(f, "invalid secret name", err);
    if (s->n_secrets == GUEST_SECRETS_MAX)
        return guest_bad_field(f, "too many secrets", err);
    s->secrets = xreallocarray(s->secrets, s->n_secrets + 1, sizeof(*s->secrets));
    secret = &s->secrets[s->n_secrets++];
    secret->name = xstrdup(f->value);
    secret->len = f->length - name - 1;
    secret->value = xmemdup(f->value + name + 1, secret->len);
    return 0;
}

static int guest_take_field(struct guest_spec *s, struct guest_strings *strings,
                            const struct guest_field *f, unsigned *seen, struct err *err)
{
    switch (f->tag) {
    case GUEST_TAG_ARG:
    case GUEST_TAG_ENV:
    case GUEST_TAG_CWD:
        return guest_take_string(s, strings, f, err);
    case GUEST_TAG_SECRET:
        return guest_take_secret(s, f, err);
    case GUEST_TAG_FLAGS:
    case GUEST_TAG_SIZE:
        if (f->length != 4 || *seen & 1U << f->tag)
            return guest_bad_field(f, f->length != 4 ? "not 4 bytes" : "given twice", err);
        *seen |= 1U << f->tag;
        if (f->tag == GUEST_TAG_FLAGS) {
            s->flags = guest_get32(f->value);
        } else {
            s->rows = guest_get16(f->value);
            s->cols = guest_get16(f->value + 2);
        }
        return 0;
    default:
        return guest_bad_field(f, "unknown", err);
    }
}

static int guest_read_fields(const char *p, size_t left, struct guest_spec *s, struct err *err)
{
    struct guest_strings strings = {0};
    unsigned seen = 0, items = 0;

    while (left) {
        struct guest_field f;
        int r;

        if (left < FIELD_HEAD || guest_get32(p + 1) > left - FIELD_HEAD)
            return err_set(err, ERR_INVALID, "guest protocol: truncated spec field");
        f = (struct guest_field){
            .tag = (uint8_t)*p, .length = guest_get32(p + 1), .value = p + FIELD_HEAD};
        if (++items > GUEST_SPEC_ITEMS_MAX + GUEST_SECRETS_MAX + 8)
            return err_set(err, ERR_LIMIT, "guest protocol: spec exceeds %d strings",
                           GUEST_SPEC_ITEMS_MAX);
        r = guest_take_field(s, &strings, &f, &seen, err);
        if (r < 0)
            return r;
        p += FIELD_HEAD + f.length;
        left -= FIELD_HEAD + f.length;
    }
    if (!s->argv || !*s->argv[0])
        return err_set(err, ERR_INVALID, "no command was given");
    return 0;
}

int guest_get_spec(const struct buf *fields, struct guest_spec *ret, struct err *err)
{
    struct guest_spec s = {0};
    int r = guest_read_fields(buf_data(fields), fields->len, &s, err);

    if (r < 0) {
        guest_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

/* ---- small frames ---- */

int guest_put_signal(struct buf *b, int sig)
{
    char v = (char)sig;

    return sig < 1 || sig > GUEST_SIGNAL_MAX ? -ERR_LIMIT : guest_put(b, GUEST_SIGNAL, &v, 1);
}

int guest_get_signal(const struct guest_frame *f, int *ret, struct err *err)
{
    int sig = (unsigned char)f->data[0];

    if (sig < 1 || sig > GUEST_SIGNAL_MAX)
        return err_set(err, ERR_INVALID, "guest protocol: invalid signal %d", sig);
    *ret = sig;
    return 0;
}

int guest_put_resize(struct buf *b, uint16_t rows, uint16_t cols)
{
    char v[4];

    guest_put16(guest_put16(v, rows), cols);
    return guest_put(b, GUEST_RESIZE, v, sizeof(v));
}

void guest_get_resize(const struct guest_frame *f, uint16_t *ret_rows, uint16_t *ret_cols)
{
    *ret_rows = guest_get16(f->data);
    *ret_cols = guest_get16(f->data + 2);
}

int guest_put_kill(struct buf *b, uint8_t flags)
{
    return guest_put(b, GUEST_KILL, &flags, 1);
}

uint8_t guest_get_kill(const struct guest_frame *f)
{
    return (uint8_t)f->data[0];
}

int guest_put_u32(struct buf *b, enum guest_type type, uint32_t v)
{
    char p[4];

    guest_put32(p, v);
    return guest_put(b, type, p, sizeof(p));
}

uint32_t guest_get_u32(const struct guest_frame *f)
{
    return guest_get32(f->data);
}

/* ---- HELLO ---- */

int guest_put_hello(struct buf *b, uint32_t pid)
{
    char v[HELLO_SIZE];

    memcpy(v, HELLO_MAGIC, MAGIC_SIZE);
    guest_put32(guest_put16(guest_put16(v + MAGIC_SIZE, GUEST_VERSION_MAJOR), GUEST_VERSION_MINOR),
                pid);
    return guest_put(b, GUEST_HELLO, v, sizeof(v));
}

int guest_get_hello(const struct guest_frame *f, struct guest_hello *ret, struct err *err)
{
    const char *p = f->data + MAGIC_SIZE;

    if (f->type != GUEST_HELLO || memcmp(f->data, HELLO_MAGIC, MAGIC_SIZE) != 0)
        return err_set(err, ERR_INVALID, "guest protocol: the first frame is not HELLO");
    if (guest_get16(p) != GUEST_VERSION_MAJOR) {
        err_set(err, ERR_UNSUPPORTED,
                "guest protocol: version mismatch (the guest speaks %u, this program speaks %d)",
                guest_get16(p), GUEST_VERSION_MAJOR);
        return err_hint(err, "Stop the sandbox and start it again.");
    }
    *ret = (struct guest_hello){
        .major = guest_get16(p), .minor = guest_get16(p + 2), .pid = guest_get32(p + 4)};
    return 0;
}

/* ---- FAILED ---- */

int guest_put_failed(struct buf *b, const struct err *why)
{
    size_t msg = why->msg ? strnlen(why->msg, GUEST_TEXT_MAX) : 0;
    size_t hint = why->hint ? strnlen(why->hint, GUEST_TEXT_MAX) : 0;
    char v[FAILED_MAX], *p = v;

    p = guest_put32(p, why->code);
    p = guest_put32(p, (uint32_t)why->errnum);
    p = guest_put16(p, (uint16_t)msg);
    if (msg)
        memcpy(p, why->msg, msg);
    if (hint)
        memcpy(p + msg, why->hint, hint);
    return guest_put(b, GUEST_FAILED, v, FAILED_MIN + msg + hint);
}

int guest_get_failed(const struct guest_frame *f, struct err *why)
{
    uint32_t code = guest_get32(f->data), errnum = guest_get32(f->data + 4);
    size_t msg = guest_get16(f->data + 8), rest = f->length - FAILED_MIN;
    const char *text = f->data + FAILED_MIN;

    if (msg > rest || msg > GUEST_TEXT_MAX || rest - msg > GUEST_TEXT_MAX ||
        memchr(text, 0, rest) || code == ERR_NONE || code >= ERR_CODE_MAX || errnum > INT16_MAX)
        return err_set(why, ERR_INVALID, "guest protocol: malformed FAILED");
    err_set(why, (enum err_code)code, "%.*s", (int)msg, text);
    if (why)
        why->errnum = (int)errnum;
    if (rest > msg)
        err_hint(why, "%.*s", (int)(rest - msg), text + msg);
    return 0;
}

/* ---- EXIT and DONE ---- */

int guest_put_exit(struct buf *b, const struct guest_exit *e)
{
    const uint64_t numbers[EXIT_NUMBERS] = {
        e->stdout_bytes, e->stderr_bytes,     e->cpu_usec,           e->max_rss,
        e->io_read,      e->io_write,         e->memory_peak_before, e->memory_peak,
        e->memory_limit, e->oom_kills_before, e->oom_kills,          e->pids_denied_before,
        e->pids_denied};
    char v[EXIT_SIZE], *p = guest_put32(guest_put32(v, e->status), e->flags);

    for (size_t i = 0; i < EXIT_NUMBERS; i++)
        p = guest_put64(p, numbers[i]);
    return guest_put(b, GUEST_EXIT, v, sizeof(v));
}

int guest_get_exit(const struct guest_frame *f, struct guest_exit *ret, struct err *err)
{
    struct guest_exit e = {.status = guest_get32(f->data), .flags = guest_get32(f->data + 4)};
    uint64_t *const numbers[EXIT_NUMBERS] = {
        &e.stdout_bytes, &e.stderr_bytes,     &e.cpu_usec,           &e.max_rss,
        &e.io_read,      &e.io_write,         &e.memory_peak_before, &e.memory_peak,
        &e.memory_limit, &e.oom_kills_before, &e.oom_kills,          &e.pids_denied_before,
        &e.pids_denied};
    int status = (int)e.status;

    if (e.status > UINT16_MAX || (!WIFEXITED(status) && !WIFSIGNALED(status)) ||
        (WIFSIGNALED(status) && WTERMSIG(status) > GUEST_SIGNAL_MAX))
        return err_set(err, ERR_INVALID, "guest protocol: invalid wait status 0x%x", e.status);
    for (size_t i = 0; i < EXIT_NUMBERS; i++)
        *numbers[i] = guest_get64(f->data + 8 + i * 8);
    *ret = e;
    return 0;
}

int guest_put_done(struct buf *b, const struct guest_done *d)
{
    char v[DONE_SIZE];

    guest_put64(guest_put64(guest_put64(v, d->entries), d->bytes), d->skipped);
    return guest_put(b, GUEST_DONE, v, sizeof(v));
}

void guest_get_done(const struct guest_frame *f, struct guest_done *ret)
{
    *ret = (struct guest_done){.entries = guest_get64(f->data),
                               .bytes = guest_get64(f->data + 8),
                               .skipped = guest_get64(f->data + 16)};
}

/* ---- connections ---- */

void guest_put_data_head(char p[static GUEST_DATA_HEAD], enum guest_type type, uint32_t id,
                         uint32_t bytes)
{
    guest_put_head(p, type, ID_SIZE + bytes);
    guest_put32(p + GUEST_HEAD_SIZE, id);
}

int guest_put_ack(struct buf *b, enum guest_type type, uint32_t id, uint32_t bytes)
{
    char v[ACK_SIZE];

    guest_put32(guest_put32(v, id), bytes);
    return guest_put(b, type, v, sizeof(v));
}

uint32_t guest_get_ack(const struct guest_frame *f)
{
    return guest_get32(f->data + ID_SIZE);
}
