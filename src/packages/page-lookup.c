/*
 * Looks a request up in the stored index pages. The disk is read by a worker, one job per request.
 * The loop then answers from the page, sends the file that the page lists, or joins the fetch of
 * the page from its upstream.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/pool.h"
#include "packages/npm-page.h"
#include "packages/packages.h"

/* Seconds. A page this new is not fetched again for a file that it does not list. */
enum { YOUNG = 5 };

enum page_lookup_result { FOUND, FOUND_OLD, FOUND_NO_FILE, FOUND_NOTHING };

struct page_lookup {
    struct packages_request *request;
    int dirfd;
    char *path, *host, *file;
    char *other; /* a second page that may list the file, or NULL */
    const char *section;
    bool any_age, metadata;
    int64_t life;
    char *policy;

    enum page_lookup_result found;
    bool young;           /* the page was fetched less than YOUNG ago */
    struct buf body;      /* the page, or the list of files that `hit` points into */
    struct page_file hit; /* the file, when `file` was found */
    struct err err;
};

static void page_lookup_free(struct page_lookup *l)
{
    free(l->path);
    free(l->other);
    free(l->host);
    free(l->file);
    free(l->policy);
    buf_done(&l->body);
    err_done(&l->err);
    free(l);
}

static enum page_lookup_result page_lookup_find_file(struct page_lookup *l, const struct page *page)
{
    if (page_read(page, PAGE_FILES, &l->body, &l->err) < 0)
        return FOUND_NOTHING;
    return page_file_find(&l->body, l->file, &l->hit) && (!l->metadata || l->hit.has_metadata)
               ? FOUND
               : FOUND_NO_FILE;
}

static enum page_lookup_result page_lookup_read_page(struct page_lookup *l, const struct page *page)
{
    _cleanup_buf_ struct buf raw = BUF_INIT(PAGE_MAX);

    if (!l->host)
        return page_read(page, l->section, &l->body, &l->err) < 0 ? FOUND_NOTHING : FOUND;
    if (page_read(page, l->section, &raw, &l->err) < 0 ||
        npm_set_host(&raw, l->host, &l->body, &l->err) < 0)
        return FOUND_NOTHING;
    return FOUND;
}

/*
 * A page with a time in the future counts as old: the clock was set back. The digest of a file
 * never changes, so a page of any age is good enough to find a file.
 */
static void page_lookup_open(struct page_lookup *l, const char *path)
{
    struct page page = {.fd = -1};
    int64_t age;

    l->found = FOUND_NOTHING;
    if (page_open(l->dirfd, path, &page) <= 0)
        return;
    age = time(NULL) - page.fetched;
    l->young = age >= 0 && age < YOUNG;
    if (l->file)
        l->found = page_lookup_find_file(l, &page);
    else if (!l->any_age && (age < 0 || age >= l->life || !STREQ(page.policy, l->policy)))
        l->found = FOUND_OLD;
    else
        l->found = page_lookup_read_page(l, &page);
    page_done(&page);
}

/* The second page only adds files. Whether the upstream is asked again depends on the first
 * page. */
static void page_lookup_work(void *arg)
{
    struct page_lookup *l = arg;
    enum page_lookup_result first;
    bool young;

    page_lookup_open(l, l->path);
    if (l->found == FOUND || !l->other)
        return;
    first = l->found;
    young = l->young;
    buf_clear(&l->body);
    err_done(&l->err);
    l->err = (struct err)ERR_INIT;
    page_lookup_open(l, l->other);
    if (l->found != FOUND) {
        l->found = first;
        l->young = young;
    }
}

/* Answers a request whose page or file is not stored and cannot be fetched. */
static void page_lookup_fail(struct packages_request *q)
{
    if (q->fetch_err.code != ERR_NONE)
        request_fail(q, &q->fetch_err);
    else if (q->pkgs->config.offline == OFFLINE_ALWAYS)
        request_fail_status(q, STATUS_OFFLINE, ERR_ENGINE,
                            "'%s' is not in the cache and the package cache is offline", q->name);
    else if (q->file)
        request_fail_status(q, 404, ERR_NOT_FOUND, "'%s' has no file '%s'", q->name, q->file);
    else
        request_fail_status(q, 503, ERR_LIMIT,
                            "the index page of '%s' was removed before it was read; try again",
                            q->name);
}

static void page_lookup_on_file(struct packages_request *q, const struct page_file *f)
{
    struct policy_item item = {
        .eco = q->eco, .name = q->name, .version = f->version, .uploaded = f->uploaded};
    char reason[POLICY_REASON_MAX];
    uint64_t size;
    int fd;

    if (q->eco == ECO_PYPI && !digest_equal(&q->want, &f->digest)) {
        request_fail_status(q, 404, ERR_NOT_FOUND, "'%s': the index lists another digest than '%s'",
                            q->file, q->want.hex);
        return;
    }
    if (policy_denies(&q->pkgs->config.policy, &item, time(NULL), reason)) {
        request_fail_status(q, 403, ERR_DENIED, "%s", reason);
        return;
    }
    q->digest = q->metadata ? f->metadata : f->digest;
    fd = blobs_use(&q->pkgs->blobs, &q->digest, &size);
    if (fd >= 0)
        request_send_blob(q, fd, size, true);
    else
        package_download_join(q, f);
}

static void page_lookup_done(void *arg)
{
    struct page_lookup *l = arg;
    struct packages_request *q = l->request;

    q->state = REQUEST_START;
    if (!q->req)
        request_free(q);
    else if (l->found == FOUND && l->file)
        page_lookup_on_file(q, &l->hit);
    else if (l->found == FOUND)
        request_send_page(q, &l->body);
    else if (l->found == FOUND_NO_FILE && l->young)
        page_lookup_fail(q);
    else if (!q->fetched && q->pkgs->config.offline != OFFLINE_ALWAYS)
        page_fetch_join(q);
    else
        page_lookup_fail(q);
    page_lookup_free(l);
}

/* A page of any age may be used when the upstream must not be asked, or did not answer. */
static bool page_lookup_accepts_any_age(const struct packages_request *q)
{
    if (q->fetched || q->pkgs->config.offline == OFFLINE_ALWAYS)
        return true;
    return q->pkgs->config.offline == OFFLINE_AUTO && q->upstream->down &&
           time_mono() < q->upstream->down_until;
}

static char *page_lookup_copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

void page_lookup_start(struct packages_request *q)
{
    struct page_lookup *l = xnew0(struct page_lookup);
    _cleanup_err_ struct err err = ERR_INIT;

    l->request = q;
    l->dirfd = q->pkgs->dirfd;
    l->path = xstrdup(q->path);
    l->other = page_lookup_copy(q->other_path);
    l->host = page_lookup_copy(q->host);
    l->file = page_lookup_copy(q->file);
    l->section = q->section;
    l->metadata = q->metadata;
    l->any_age = page_lookup_accepts_any_age(q);
    q->stale |= l->any_age && !q->fetched && q->pkgs->config.offline == OFFLINE_AUTO;
    l->life = (int64_t)q->pkgs->config.metadata_life;
    l->policy = xstrdup(q->pkgs->config.policy.print);
    l->body = (struct buf)BUF_INIT(PAGE_MAX + PAGE_MAX / 4);
    q->state = REQUEST_LOOKUP;
    if (pool_submit(q->pkgs->disk, page_lookup_work, page_lookup_done, l, &err) >= 0)
        return;
    page_lookup_free(l);
    q->state = REQUEST_START;
    request_fail_status(q, 503, ERR_LIMIT, "the package cache is busy");
}
