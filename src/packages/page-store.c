/*
 * Format of the file: lines "key value" up to an empty line, then the bytes of the sections in the
 * order of their lines. A file with another format counts as missing, so the page is fetched again.
 */
#include "packages/page-store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

#define PAGE_MAGIC "ripcord-page 1\n"

struct buf *page_draft_add(struct page_draft *d, const char *name)
{
    struct page_section *s = &d->sections[d->n_sections++];

    *s = (struct page_section){.name = name, .body = BUF_INIT(PAGE_MAX)};
    return &s->body;
}

void page_draft_done(struct page_draft *d)
{
    for (size_t i = 0; i < d->n_sections; i++)
        buf_done(&d->sections[i].body);
    d->n_sections = 0;
}

static int page_write_head(const struct page_draft *d, struct buf *head)
{
    int r = buf_append_str(head, PAGE_MAGIC);

    if (r < 0)
        return r;
    r = d->etag && strlen(d->etag) < 1024 ? buf_appendf(head, "etag %s\n", d->etag) : 0;
    if (r < 0)
        return r;
    r = buf_appendf(head, "policy %s\n", d->policy);
    if (r < 0)
        return r;
    for (size_t i = 0; i < d->n_sections; i++) {
        r = buf_appendf(head, "section %s %zu\n", d->sections[i].name, d->sections[i].body.len);
        if (r < 0)
            return r;
    }
    return buf_append_str(head, "\n");
}

static int page_write_file(int fd, const struct page_draft *d, const struct buf *head)
{
    int r = fd_write_all(fd, buf_data(head), head->len);

    if (r < 0)
        return r;
    for (size_t i = 0; i < d->n_sections; i++) {
        r = fd_write_all(fd, buf_data(&d->sections[i].body), d->sections[i].body.len);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Without fsync: after a crash of the machine a torn page counts as missing. A damaged page can do
 * no harm, because every file must still match its digest. */
int page_write(int dirfd, const char *path, const struct page_draft *d, struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("tmp/page-%ld-%p", (long)gettid(), (void *)d);
    _cleanup_buf_ struct buf head = BUF_INIT(PAGE_HEAD_MAX);
    _cleanup_close_ int fd = -1;
    int r;

    if (page_write_head(d, &head) < 0)
        return err_set(err, ERR_LIMIT, "index page '%s': the head is too long", path);
    fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, errno, "create '%s'", tmp);
    r = page_write_file(fd, d, &head);
    if (r == 0)
        r = renameat(dirfd, tmp, dirfd, path) < 0 ? -errno : 0;
    if (r == 0)
        return 0;
    unlinkat(dirfd, tmp, 0);
    return err_sys(err, -r, "write index page '%s'", path);
}

static bool page_take_section(struct page *p, const char *value, uint64_t *offset)
{
    char name[16];
    unsigned long long length;

    if (p->n_sections == PAGE_SECTIONS_MAX || sscanf(value, "%15s %llu", name, &length) != 2 ||
        length > PAGE_MAX)
        return false;
    snprintf(p->sections[p->n_sections].name, sizeof(name), "%s", name);
    p->sections[p->n_sections].offset = *offset;
    p->sections[p->n_sections++].length = length;
    *offset += length;
    return true;
}

static bool page_parse_head(struct page *p, char *text, size_t len, uint64_t size)
{
    char *end = memmem(text, len, "\n\n", 2), *line, *save = text;
    uint64_t offset;

    if (!end || strncmp(text, PAGE_MAGIC, strlen(PAGE_MAGIC)) != 0)
        return false;
    offset = (uint64_t)(end - text) + 2;
    *end = '\0';
    strsep(&save, "\n");
    while ((line = strsep(&save, "\n"))) {
        char *value = strchr(line, ' ');

        if (!value)
            return false;
        *value++ = '\0';
        if (STREQ(line, "etag") && !p->etag)
            p->etag = xstrdup(value);
        else if (STREQ(line, "policy") && !p->policy)
            p->policy = xstrdup(value);
        else if (!STREQ(line, "section") || !page_take_section(p, value, &offset))
            return false;
    }
    return offset == size && p->policy;
}

int page_open(int dirfd, const char *path, struct page *ret)
{
    struct page p = {.fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
    char head[PAGE_HEAD_MAX + 1];
    struct stat st;
    ssize_t n;

    if (p.fd < 0)
        return 0;
    n = pread(p.fd, head, PAGE_HEAD_MAX, 0);
    if (n > 0)
        head[n] = '\0';
    if (n <= 0 || fstat(p.fd, &st) < 0 ||
        !page_parse_head(&p, head, (size_t)n, (uint64_t)st.st_size)) {
        page_done(&p);
        return 0;
    }
    p.fetched = st.st_mtime;
    *ret = p;
    return 1;
}

void page_done(struct page *p)
{
    p->fd = fd_close(p->fd);
    free(p->etag);
    free(p->policy);
    p->etag = p->policy = NULL;
}

void page_touch(const struct page *p)
{
    futimens(p->fd, NULL);
}

int page_read(const struct page *p, const char *section, struct buf *ret, struct err *err)
{
    for (size_t i = 0; i < p->n_sections; i++) {
        size_t len = (size_t)p->sections[i].length, got = 0;
        char *to;

        if (!STREQ(p->sections[i].name, section))
            continue;
        to = buf_reserve(ret, len);
        if (!to)
            return err_set(err, ERR_LIMIT, "index page: section '%s' is too long", section);
        while (got < len) {
            ssize_t n = pread(p->fd, to + got, len - got, (off_t)(p->sections[i].offset + got));

            if (n <= 0)
                return err_sys(err, n < 0 ? errno : EIO, "read an index page");
            got += (size_t)n;
        }
        buf_commit(ret, len);
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "index page: no section '%s'", section);
}

/* -- the list of files -- */

static bool page_one_field(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == 0x7f)
            return false;
    return true;
}

int page_file_add(struct buf *b, const struct page_file *f)
{
    if (!page_one_field(f->name) || !page_one_field(f->version) || !page_one_field(f->url))
        return 0;
    return buf_appendf(b, "\n%s %s %s %s %llu %lld %s %s\n", f->name,
                       f->version[0] ? f->version : "-", digest_algo_name(f->digest.algo),
                       f->digest.hex, (unsigned long long)f->size, (long long)f->uploaded,
                       f->has_metadata ? f->metadata.hex : "-", f->url);
}

static bool page_parse_line(char *line, struct page_file *ret)
{
    char *field[8];
    struct page_file f = {0};
    uint64_t uploaded = 0;

    for (int i = 0; i < 8; i++) {
        field[i] = strsep(&line, " ");
        if (!field[i])
            return false;
    }
    f.name = field[0];
    f.version = STREQ(field[1], "-") ? "" : field[1];
    f.url = field[7];
    f.uploaded = -1;
    if (field[5][0] != '-' && parse_u64(field[5], 0, INT64_MAX, &uploaded, NULL) >= 0)
        f.uploaded = (int64_t)uploaded;
    f.has_metadata = digest_from_hex(DIGEST_SHA256, field[6], &f.metadata);
    if (!digest_from_parts(field[2], field[3], &f.digest) ||
        parse_u64(field[4], 0, INT64_MAX, &f.size, NULL) < 0)
        return false;
    *ret = f;
    return true;
}

bool page_file_find(struct buf *files, const char *name, struct page_file *ret)
{
    _cleanup_free_ char *key = xasprintf("\n%s ", name);
    char *at = files->len ? memmem(buf_data(files), files->len, key, strlen(key)) : NULL;
    char *end = at ? strchr(at + 1, '\n') : NULL;

    if (!end)
        return false;
    *end = '\0';
    return page_parse_line(at + 1, ret);
}
