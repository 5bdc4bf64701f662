#include "lib/base/tar.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

/* POSIX ustar; GNU uses the same places for what we read. */
struct ustar {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char mtime[12];
    char chksum[8];
    char type;
    char link[100];
    char magic[6];
    char version[2];
    char uname[32];
    char gname[32];
    char devmajor[8];
    char devminor[8];
    char prefix[155];
    char pad[12];
};

_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a tar header is one block");

/* Values of a pax or GNU header for the next entry. */
struct overrides {
    char *path, *link; /* owned */
    bool has_size, has_uid, has_gid, has_mtime;
    uint64_t size, uid, gid;
    int64_t mtime;
    uint64_t left_out;
};

static void tar_overrides_done(struct overrides *o)
{
    free(o->path);
    free(o->link);
}

/* ---- reading ---- */

void tar_reader_init(struct tar_reader *r, tar_read_fn read, void *arg)
{
    *r = (struct tar_reader){.read = read, .arg = arg};
}

/* 1: all bytes are read; 0: the stream ended before the first byte. */
static int tar_read_exact(struct tar_reader *r, void *data, size_t len, struct err *err)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = r->read(r->arg, (char *)data + got, len - got);

        if (n < 0)
            return err_sys(err, (int)-n, "read archive");
        if (n == 0 && got == 0)
            return 0;
        if (n == 0)
            return err_set(err, ERR_INVALID, "archive is truncated");
        got += (size_t)n;
    }
    return 1;
}

ssize_t tar_read(struct tar_reader *r, void *data, size_t len, struct err *err)
{
    char pad[TAR_BLOCK];
    ssize_t n;
    int ok;

    if (r->left == 0) {
        ok = r->pad ? tar_read_exact(r, pad, r->pad, err) : 1;
        r->pad = 0;
        /* Some writers omit the last padding; no data is missing then. */
        return ok < 0 ? ok : 0;
    }
    n = r->read(r->arg, data, MIN((uint64_t)len, r->left));
    if (n < 0)
        return err_sys(err, (int)-n, "read archive");
    if (n == 0)
        return err_set(err, ERR_INVALID, "archive is truncated");
    r->left -= (uint64_t)n;
    return n;
}

static int tar_skip_data(struct tar_reader *r, struct err *err)
{
    char scrap[16 * TAR_BLOCK];
    ssize_t n;

    do
        n = tar_read(r, scrap, sizeof(scrap), err);
    while (n > 0);
    return (int)n;
}

static void tar_expect_data(struct tar_reader *r, uint64_t size)
{
    r->left = size;
    r->pad = (unsigned)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

/* An octal field (blanks or NUL around it) or GNU's base-256 with the top bit set. */
static int tar_get_number(const char *p, size_t len, const char *what, uint64_t *ret,
                          struct err *err)
{
    uint64_t v = 0;
    size_t i = 0;

    if ((unsigned char)p[0] == 0x80) {
        for (i = 1; i < len; i++) {
            if (v >> 55)
                return err_set(err, ERR_INVALID, "archive header: %s is too large", what);
            v = v << 8 | (unsigned char)p[i];
        }
        *ret = v;
        return 0;
    }
    while (i < len && p[i] == ' ')
        i++;
    for (; i < len && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 60)
            return err_set(err, ERR_INVALID, "archive header: %s is too large", what);
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    for (; i < len; i++)
        if (p[i] != ' ' && p[i] != '\0')
            return err_set(err, ERR_INVALID, "archive header: %s is not a number", what);
    *ret = v;
    return 0;
}

static bool tar_checksum_ok(const struct ustar *h)
{
    const unsigned char *p = (const unsigned char *)h;
    uint64_t want, sum = 0;

    if (tar_get_number(h->chksum, sizeof(h->chksum), "checksum", &want, NULL) < 0)
        return false;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        bool in_field = i >= offsetof(struct ustar, chksum) && i < offsetof(struct ustar, type);

        sum += in_field ? ' ' : p[i];
    }
    return sum == want;
}

/* Reads the data after a header (pax records, a long name) as text of at most `max` bytes. */
static int tar_read_text(struct tar_reader *r, uint64_t size, size_t max, char **ret,
                         struct err *err)
{
    _cleanup_free_ char *text = NULL;
    int ok;

    if (size == 0 || (size > max && GUARD("header sizes")))
        return err_set(err, ERR_LIMIT, "archive header of %llu bytes is too large (at most %zu)",
                       (unsigned long long)size, max);
    text = xmalloc(size + 1);
    ok = tar_read_exact(r, text, size, err);
    if (ok == 0)
        return err_set(err, ERR_INVALID, "archive is truncated");
    if (ok < 0)
        return ok;
    text[size] = '\0';
    tar_expect_data(r, size);
    r->left = 0;
    ok = tar_skip_data(r, err);
    if (ok < 0)
        return ok;
    *ret = TAKE_PTR(text);
    return 0;
}

/* Pax numbers may carry a sign and a fraction (mtime); the fraction is dropped. */
static int tar_pax_time(const char *value, int64_t *ret, struct err *err)
{
    bool negative = value[0] == '-';
    char digits[24];
    uint64_t v = 0;
    size_t len;
    int r;

    value += negative;
    len = strcspn(value, ".");
    if (len >= sizeof(digits))
        return err_set(err, ERR_INVALID, "archive: mtime is too large");
    memcpy(digits, value, len);
    digits[len] = '\0';
    r = parse_u64(digits, 0, INT64_MAX, &v, err);
    if (r < 0)
        return err_wrap(err, "archive: mtime");
    *ret = negative ? -(int64_t)v : (int64_t)v;
    return 0;
}

static int tar_pax_number(const char *key, const char *value, bool *has, uint64_t *ret,
                          struct err *err)
{
    int r = parse_u64(value, 0, INT64_MAX, ret, err);

    if (r < 0)
        return err_wrap(err, "archive: %s", key);
    *has = true;
    return 0;
}

/* Our note in a pax comment, which other programs ignore: see tar_put_left_out(). */
static const char left_out_mark[] = "ripcord left out ";

static int tar_pax_set(struct overrides *o, const char *key, const char *value, struct err *err)
{
    if (STREQ(key, "path")) {
        free(o->path);
        o->path = xstrdup(value);
    } else if (STREQ(key, "linkpath")) {
        free(o->link);
        o->link = xstrdup(value);
    } else if (STREQ(key, "size")) {
        return tar_pax_number(key, value, &o->has_size, &o->size, err);
    } else if (STREQ(key, "uid")) {
        return tar_pax_number(key, value, &o->has_uid, &o->uid, err);
    } else if (STREQ(key, "gid")) {
        return tar_pax_number(key, value, &o->has_gid, &o->gid, err);
    } else if (STREQ(key, "mtime")) {
        o->has_mtime = true;
        return tar_pax_time(value, &o->mtime, err);
    } else if (STREQ(key, "comment") &&
               strncmp(value, left_out_mark, sizeof(left_out_mark) - 1) == 0) {
        (void)parse_u64(value + sizeof(left_out_mark) - 1, 0, TAR_ENTRIES_MAX, &o->left_out, NULL);
    } else if (strncmp(key, "GNU.sparse", 10) == 0) {
        return err_set(err, ERR_UNSUPPORTED,
                       "archive holds a sparse file; write it without --sparse");
    }
    return 0;
}

/* Records "LEN key=value\n", LEN counting the whole record. */
static int tar_pax_parse(struct overrides *o, char *text, size_t size, struct err *err)
{
    char *p = text, *end = text + size;

    while (p < end) {
        char *record = p, *blank = memchr(p, ' ', MIN((size_t)(end - p), (size_t)8)), *eq;
        uint64_t len;
        int r;

        if (!blank)
            return err_set(err, ERR_INVALID, "archive: malformed pax record");
        *blank = '\0';
        if (parse_u64(record, 5, (uint64_t)(end - record), &len, NULL) < 0 ||
            record + len <= blank + 2 || record[len - 1] != '\n')
            return err_set(err, ERR_INVALID, "archive: malformed pax record");
        record[len - 1] = '\0';
        eq = strchr(blank + 1, '=');
        if (!eq || strlen(eq + 1) != (size_t)(record + len - 1 - (eq + 1)))
            return err_set(err, ERR_INVALID, "archive: malformed pax record");
        *eq = '\0';
        r = tar_pax_set(o, blank + 1, eq + 1, err);
        if (r < 0)
            return r;
        p = record + len;
    }
    return 0;
}

static int tar_copy_name(char ret[static TAR_PATH_MAX], const char *prefix, size_t prefix_len,
                         const char *name, size_t name_len, struct err *err)
{
    int n;

    n = snprintf(ret, TAR_PATH_MAX, "%.*s%s%.*s", (int)strnlen(prefix, prefix_len), prefix,
                 prefix_len && prefix[0] ? "/" : "", (int)strnlen(name, name_len), name);
    if (n < 0 || n >= TAR_PATH_MAX)
        return err_set(err, ERR_LIMIT, "archive: a path is longer than %d bytes", TAR_PATH_MAX - 1);
    return 0;
}

static enum tar_type tar_type_of(char c, const char *path)
{
    size_t len = strlen(path);

    switch (c) {
    case '0':
    case '\0':
    case '7':
        return len && path[len - 1] == '/' ? TAR_DIR : TAR_FILE; /* pre-POSIX folders */
    case '1':
        return TAR_HARDLINK;
    case '2':
        return TAR_SYMLINK;
    case '5':
        return TAR_DIR;
    default:
        return TAR_OTHER;
    }
}

static int tar_fill_numbers(const struct ustar *h, const struct overrides *o, struct tar_entry *e,
                            struct err *err)
{
    uint64_t mode, mtime;
    int r;

    if ((r = tar_get_number(h->mode, sizeof(h->mode), "mode", &mode, err)) < 0 ||
        (r = tar_get_number(h->uid, sizeof(h->uid), "uid", &e->uid, err)) < 0 ||
        (r = tar_get_number(h->gid, sizeof(h->gid), "gid", &e->gid, err)) < 0 ||
        (r = tar_get_number(h->size, sizeof(h->size), "size", &e->size, err)) < 0)
        return r;
    /* Times before 1970 are negative base-256 numbers: not worth refusing an archive for. */
    if (tar_get_number(h->mtime, sizeof(h->mtime), "mtime", &mtime, NULL) < 0)
        mtime = 0;
    e->mode = (mode_t)(mode & 07777);
    e->mtime = o->has_mtime ? o->mtime : (int64_t)mtime;
    e->uid = o->has_uid ? o->uid : e->uid;
    e->gid = o->has_gid ? o->gid : e->gid;
    e->size = o->has_size ? o->size : e->size;
    return 0;
}

static int tar_fill_entry(struct tar_reader *r, const struct ustar *h, const struct overrides *o,
                          struct tar_entry *e, struct err *err)
{
    bool posix = memcmp(h->magic, "ustar\0", 6) == 0;
    int x;

    x = o->path ? tar_copy_name(e->path, "", 0, o->path, TAR_PATH_MAX, err)
                : tar_copy_name(e->path, h->prefix, posix ? sizeof(h->prefix) : 0, h->name,
                                sizeof(h->name), err);
    if (x == 0)
        x = o->link ? tar_copy_name(e->link, "", 0, o->link, TAR_PATH_MAX, err)
                    : tar_copy_name(e->link, "", 0, h->link, sizeof(h->link), err);
    if (x == 0)
        x = tar_fill_numbers(h, o, e, err);
    if (x < 0)
        return x;
    if (h->type == 'S' || h->type == 'M')
        return err_set(err, ERR_UNSUPPORTED,
                       "archive: '%s' is sparse or multi-volume (not supported)", e->path);
    e->type = tar_type_of(h->type, e->path);
    /* Only regular files have data. Some writers give links and folders a size; it is ignored. */
    if (e->type != TAR_FILE)
        e->size = 0;
    tar_expect_data(r, e->size);
    return 1;
}

/* Of global records only our own note is used. */
static void tar_take_global(struct tar_reader *r, char *text, size_t size)
{
    __attribute__((cleanup(tar_overrides_done))) struct overrides global = {0};

    if (tar_pax_parse(&global, text, size, NULL) >= 0)
        r->left_out += global.left_out;
}

/* Reads a pax or GNU header before an entry. 1: h was such a header. */
static int tar_take_header(struct tar_reader *r, const struct ustar *h, struct overrides *o,
                           struct err *err)
{
    _cleanup_free_ char *text = NULL;
    uint64_t size;
    int x;

    if (!strchr("xgLK", h->type) || h->type == '\0')
        return 0;
    x = tar_get_number(h->size, sizeof(h->size), "size", &size, err);
    if (x == 0)
        x = tar_read_text(r, size, h->type == 'x' || h->type == 'g' ? TAR_PAX_MAX : TAR_PATH_MAX,
                          &text, err);
    if (x < 0)
        return x;
    if (h->type == 'x')
        x = tar_pax_parse(o, text, size, err);
    else if (h->type == 'L')
        x = tar_pax_set(o, "path", text, err);
    else if (h->type == 'K')
        x = tar_pax_set(o, "linkpath", text, err);
    else
        tar_take_global(r, text, size);
    return x < 0 ? x : 1;
}

int tar_next(struct tar_reader *r, struct tar_entry *ret, struct err *err)
{
    __attribute__((cleanup(tar_overrides_done))) struct overrides o = {0};
    static const struct ustar zero;
    struct ustar h;
    unsigned headers = 0;
    int x;

    x = tar_skip_data(r, err);
    if (x < 0 || r->ended)
        return x;
    for (;;) {
        x = tar_read_exact(r, &h, sizeof(h), err);
        if (x < 0)
            return x;
        if (x == 0 || memcmp(&h, &zero, sizeof(h)) == 0) {
            r->ended = true;
            r->marked = x > 0;
            return 0;
        }
        if (!tar_checksum_ok(&h))
            return err_set(err, ERR_INVALID,
                           "not a tar archive, or a damaged one: bad header checksum");
        if (++r->entries > TAR_ENTRIES_MAX || (++headers > 16 && GUARD("header chains")))
            return err_set(err, ERR_LIMIT,
                           "archive has more than %d entries, or too many headers for one entry",
                           TAR_ENTRIES_MAX);
        x = tar_take_header(r, &h, &o, err);
        if (x < 0)
            return x;
        if (x == 0)
            return tar_fill_entry(r, &h, &o, ret, err);
    }
}

/* ---- writing ---- */

void tar_writer_init(struct tar_writer *w, tar_write_fn write, void *arg)
{
    *w = (struct tar_writer){.write = write, .arg = arg};
}

static int tar_put_bytes(struct tar_writer *w, const void *data, size_t len, struct err *err)
{
    int r = w->write(w->arg, data, len);

    return r < 0 ? err_sys(err, -r, "write archive") : 0;
}

/* Octal when it fits the field, else GNU base-256. */
static void tar_put_number(char *p, size_t len, uint64_t v)
{
    if (len >= 22 || v < (1ULL << (3 * (len - 1)))) {
        for (size_t i = len - 1; i-- > 0; v >>= 3)
            p[i] = (char)('0' + (v & 7));
        p[len - 1] = '\0';
        return;
    }
    for (size_t i = len; i-- > 1; v >>= 8)
        p[i] = (char)(v & 0xff);
    p[0] = (char)0x80;
}

static int tar_put_header(struct tar_writer *w, const struct tar_entry *e, char type,
                          const char *path, uint64_t size, struct err *err)
{
    struct ustar h = {0};
    unsigned sum = 0;

    memcpy(h.name, path, MIN(strlen(path), sizeof(h.name)));
    memcpy(h.link, e->link, MIN(strlen(e->link), sizeof(h.link)));
    tar_put_number(h.mode, sizeof(h.mode), e->mode & 07777);
    tar_put_number(h.uid, sizeof(h.uid), e->uid);
    tar_put_number(h.gid, sizeof(h.gid), e->gid);
    tar_put_number(h.size, sizeof(h.size), size);
    tar_put_number(h.mtime, sizeof(h.mtime), e->mtime > 0 ? (uint64_t)e->mtime : 0);
    h.type = type;
    memcpy(h.magic, "ustar", 6);
    memcpy(h.version, "00", 2);
    memset(h.chksum, ' ', sizeof(h.chksum));
    for (size_t i = 0; i < sizeof(h); i++)
        sum += ((unsigned char *)&h)[i];
    tar_put_number(h.chksum, 7, sum);
    return tar_put_bytes(w, &h, sizeof(h), err);
}

static int tar_put_padding(struct tar_writer *w, struct err *err)
{
    static const char zeros[TAR_BLOCK];
    unsigned pad = w->pad;

    w->pad = 0;
    return pad ? tar_put_bytes(w, zeros, pad, err) : 0;
}

/* "LEN key=value\n" where LEN counts its own digits too. */
static int tar_pax_record_n(struct buf *b, const char *key, const void *value, size_t n)
{
    size_t body = strlen(key) + n + 3, len = body + 1;
    char digits[24];

    while ((size_t)snprintf(digits, sizeof(digits), "%zu", len) + body != len)
        len = strlen(digits) + body;
    if (buf_appendf(b, "%zu %s=", len, key) < 0 || buf_append(b, value, n) < 0)
        return -1;
    return buf_append(b, "\n", 1);
}

static int tar_pax_record(struct buf *b, const char *key, const char *value)
{
    return tar_pax_record_n(b, key, value, strlen(value));
}

static int tar_pax_xattrs(struct buf *b, const struct tar_entry *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < e->n_xattrs; i++) {
        const struct tar_xattr *x = &e->xattrs[i];
        char key[64 + XATTR_NAME_MAX];

        snprintf(key, sizeof(key), "SCHILY.xattr.%s", x->name);
        b->max += sizeof(key) + x->len + 32;
        r = tar_pax_record_n(b, key, x->value, x->len);
    }
    return r;
}

static int tar_put_records(struct tar_writer *w, char type, const struct buf *b, struct err *err)
{
    struct tar_entry head = {.mode = 0644};
    int r = tar_put_header(w, &head, type, "PaxHeaders/entry", b->len, err);

    if (r == 0)
        r = tar_put_bytes(w, buf_data(b), b->len, err);
    w->pad = (unsigned)((TAR_BLOCK - b->len % TAR_BLOCK) % TAR_BLOCK);
    return r < 0 ? r : tar_put_padding(w, err);
}

static int tar_put_pax(struct tar_writer *w, const struct tar_entry *e, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(TAR_PAX_MAX);
    int r = 0;

    if (strlen(e->path) > sizeof(((struct ustar *)0)->name))
        r = tar_pax_record(&b, "path", e->path);
    if (r == 0 && strlen(e->link) > sizeof(((struct ustar *)0)->link))
        r = tar_pax_record(&b, "linkpath", e->link);
    if (r == 0)
        r = tar_pax_xattrs(&b, e);
    if (r < 0)
        return err_set(err, ERR_LIMIT, "path of '%.60s...' is too long for an archive", e->path);
    return b.len ? tar_put_records(w, 'x', &b, err) : 0;
}

int tar_put_left_out(struct tar_writer *w, uint64_t n, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(TAR_PAX_MAX);
    char text[64];

    snprintf(text, sizeof(text), "%s%llu", left_out_mark, (unsigned long long)n);
    if (tar_pax_record(&b, "comment", text) < 0)
        return err_set(err, ERR_LIMIT, "archive: a comment is too long");
    return tar_put_records(w, 'g', &b, err);
}

int tar_put(struct tar_writer *w, const struct tar_entry *e, struct err *err)
{
    static const char types[] = {
        [TAR_FILE] = '0', [TAR_DIR] = '5', [TAR_SYMLINK] = '2', [TAR_HARDLINK] = '1'};
    uint64_t size = e->type == TAR_FILE ? e->size : 0;
    int r;

    if (w->left)
        return err_set(err, ERR_SYSTEM, "archive: %llu bytes of the previous entry are missing",
                       (unsigned long long)w->left);
    if (e->type == TAR_OTHER)
        return err_set(err, ERR_UNSUPPORTED, "'%s' is not a file, folder or link", e->path);
    r = tar_put_pax(w, e, err);
    if (r == 0)
        r = tar_put_header(w, e, types[e->type], e->path, size, err);
    w->left = size;
    w->pad = (unsigned)((TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
    return r;
}

int tar_write(struct tar_writer *w, const void *data, size_t len, struct err *err)
{
    int r;

    if (len > w->left)
        return err_set(err, ERR_SYSTEM, "archive: more data than the entry's size");
    r = tar_put_bytes(w, data, len, err);
    w->left -= len;
    if (r == 0 && w->left == 0)
        r = tar_put_padding(w, err);
    return r;
}

int tar_finish(struct tar_writer *w, struct err *err)
{
    static const char zeros[2 * TAR_BLOCK];

    if (w->left)
        return err_set(err, ERR_SYSTEM, "archive: the last entry is incomplete");
    return tar_put_bytes(w, zeros, sizeof(zeros), err);
}
