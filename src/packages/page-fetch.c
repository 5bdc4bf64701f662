/*
 * Fetches index pages from upstreams. All requests that wait for one page share one fetch. A worker
 * downloads the page, rewrites its links (pypi-page.c, npm-page.c) and stores the result
 * (page-store.c). The loop then sends the requests through page_lookup_start() again.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "lib/loop/pool.h"
#include "packages/npm-page.h"
#include "packages/packages.h"
#include "packages/pypi-page.h"

#define PAGE_TIME_MAX (120 * USEC_PER_SEC)
enum { PAGE_TRIES = 2, PARSE_ALONE = 4 << 20 };

struct page_fetch {
    struct packages *pkgs;
    struct packages_client *owner;     /* its fetch slot is in use; NULL once the client is gone */
    struct packages_request *requests; /* the requests that wait */
    struct upstream *upstream;         /* its fetcher may be used from any thread */
    enum ecosystem eco;
    char *path, *name, *url;
    bool full;
    uint64_t size_max;

    struct buf body;
    uint64_t got, received; /* bytes after and before decompression */
    int status;
    struct err err;
};

static void page_fetch_free(struct page_fetch *p)
{
    free(p->path);
    free(p->name);
    free(p->url);
    buf_done(&p->body);
    err_done(&p->err);
    free(p);
}

static int page_fetch_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct page_fetch *p = arg;

    p->got += len;
    return buf_append(&p->body, data, len) < 0
               ? err_set(err, ERR_LIMIT, "the index page is larger than %zu bytes", p->body.max)
               : 0;
}

/*
 * A parsed document needs many times its length in memory. Workers parse large documents one at a
 * time, so that sixteen hostile documents do not need sixteen times that memory.
 */
static pthread_mutex_t parse_lock = PTHREAD_MUTEX_INITIALIZER;

static int page_fetch_rewrite(struct page_fetch *p, const struct fetch_head *head,
                              struct page_draft *draft)
{
    const struct policy *policy = &p->pkgs->config.policy; /* constant after start */

    if (p->eco == ECO_PYPI)
        return pypi_make_page(&(struct pypi_input){.name = p->name,
                                                   .url = p->url,
                                                   .content_type = head->content_type,
                                                   .text = buf_data(&p->body),
                                                   .len = p->body.len},
                              policy, time(NULL), draft, &p->err);
    return npm_make_page(&(struct npm_input){.name = p->name,
                                             .url = p->url,
                                             .abbreviate = !p->full,
                                             .text = buf_data(&p->body),
                                             .len = p->body.len},
                         policy, time(NULL), draft, &p->err);
}

static void page_fetch_store(struct page_fetch *p, const struct fetch_head *head)
{
    struct page_draft draft = {.etag = head->etag, .policy = p->pkgs->config.policy.print};

    bool alone = p->body.len > PARSE_ALONE;
    int r;

    if (alone)
        pthread_mutex_lock(&parse_lock);
    r = page_fetch_rewrite(p, head, &draft);
    if (alone)
        pthread_mutex_unlock(&parse_lock);
    buf_done(&p->body);
    if (r == 0)
        (void)page_write(p->pkgs->dirfd, p->path, &draft, &p->err);
    page_draft_done(&draft);
}

/* min_age needs the dates of npm versions. Only the full document has them. */
static const char *page_fetch_accept(const struct page_fetch *p)
{
    if (p->eco == ECO_PYPI)
        return PYPI_ACCEPT;
    return p->full || p->pkgs->config.policy.min_age ? "application/json" : NPM_ACCEPT_ABBREVIATED;
}

static int page_fetch_try(struct page_fetch *p, const char *etag, struct fetch_head *head)
{
    struct fetch f = {.url = p->url,
                      .accept = page_fetch_accept(p),
                      .etag = etag,
                      .size_max = p->size_max,
                      .time_max = PAGE_TIME_MAX,
                      .compressed = true,
                      .on_data = page_fetch_on_data,
                      .arg = p,
                      .received = &p->received};

    err_done(&p->err);
    p->err = (struct err)ERR_INIT;
    buf_clear(&p->body);
    return fetch_run(p->upstream->fetcher, &f, head, &p->err);
}

static void page_fetch_judge_status(struct page_fetch *p)
{
    if (p->status == 404 || p->status == 410) {
        unlinkat(p->pkgs->dirfd, p->path, 0);
        err_set(&p->err, ERR_NOT_FOUND, "upstream '%s' has no package '%s'", p->upstream->name,
                p->name);
    } else if (p->status == 401 || p->status == 403) {
        err_set(&p->err, ERR_DENIED, "upstream '%s' refuses '%s' (HTTP status %d)",
                p->upstream->name, p->name, p->status);
    } else {
        err_set(&p->err, ERR_ENGINE, "upstream '%s': unexpected HTTP status %d for '%s'",
                p->upstream->name, p->status, p->name);
    }
}

static void page_fetch_work(void *arg)
{
    struct page_fetch *p = arg;
    struct page page = {.fd = -1};
    struct fetch_head head = {0};
    const char *etag = NULL;
    int r = -ERR_ENGINE;

    if (page_open(p->pkgs->dirfd, p->path, &page) > 0 &&
        STREQ(page.policy, p->pkgs->config.policy.print))
        etag = page.etag;
    for (int i = 0; i < PAGE_TRIES && (r == -ERR_ENGINE || r == -ERR_TIMEOUT); i++)
        r = page_fetch_try(p, etag, &head);
    p->status = r < 0 ? 0 : head.status;
    if (p->status == 304 && page.fd >= 0)
        page_touch(&page);
    else if (p->status == 200)
        page_fetch_store(p, &head);
    else if (r >= 0)
        page_fetch_judge_status(p);
    fetch_head_done(&head);
    page_done(&page);
}

/* An answer of the upstream is final. Without one, a stored page of any age may be used. */
static void page_fetch_answer(struct packages_request *q, const struct page_fetch *p)
{
    bool unreached = p->err.code == ERR_ENGINE || p->err.code == ERR_TIMEOUT;

    q->state = REQUEST_START;
    q->page_fetch = NULL;
    q->fetched = true;
    if (p->err.code != ERR_NONE && (!unreached || q->pkgs->config.offline == OFFLINE_NEVER)) {
        request_fail(q, &p->err);
        return;
    }
    if (p->err.code != ERR_NONE) {
        q->stale = true;
        err_copy(&q->fetch_err, &p->err);
    }
    page_lookup_start(q);
}

static void page_fetch_done(void *arg)
{
    struct page_fetch *p = arg;
    struct packages *pkgs = p->pkgs;

    map_remove(&pkgs->page_fetches, p->path);
    if (p->status == 404 || p->status == 410)
        packages_set_missing(pkgs, p->path);
    else if (p->status == 200)
        page_trim_note(pkgs, p->got);
    pkgs->counters[p->eco].bytes_upstream += p->received;
    if (p->requests && p->requests->client)
        p->requests->client->counters[p->eco].bytes_upstream += p->received;
    if (p->err.code == ERR_ENGINE || p->err.code == ERR_TIMEOUT)
        packages_upstream_failed(pkgs, p->upstream, &p->err);
    else
        packages_upstream_works(pkgs, p->upstream);
    while (p->requests) {
        struct packages_request *q = p->requests;

        p->requests = q->next;
        q->next = NULL;
        page_fetch_answer(q, p);
    }
    fetch_slot_end(p->owner);
    page_fetch_free(p);
}

void page_fetch_disown(struct page_fetch *p, const struct packages_client *client)
{
    if (p->owner == client)
        p->owner = NULL;
}

static char *page_fetch_url(const struct packages_request *q)
{
    const char *slash = strchr(q->name, '/');

    if (q->eco == ECO_PYPI)
        return xasprintf("%s%s/", q->upstream->url, q->name);
    if (!slash)
        return xasprintf("%s%s", q->upstream->url, q->name);
    return xasprintf("%s%.*s%%2f%s", q->upstream->url, (int)(slash - q->name), q->name, slash + 1);
}

static struct page_fetch *page_fetch_new(const struct packages_request *q)
{
    struct page_fetch *p = xnew0(struct page_fetch);

    p->pkgs = q->pkgs;
    p->upstream = q->upstream;
    p->eco = q->eco;
    p->path = xstrdup(q->path);
    p->name = xstrdup(q->name);
    p->url = page_fetch_url(q);
    p->full = q->full;
    p->size_max = q->pkgs->config.metadata_max;
    p->body = (struct buf)BUF_INIT((size_t)p->size_max);
    return p;
}

void page_fetch_join(struct packages_request *q)
{
    struct page_fetch *p = map_get(&q->pkgs->page_fetches, q->path);
    _cleanup_err_ struct err err = ERR_INIT;

    if (!p && packages_is_missing(q->pkgs, q->path)) {
        request_fail_status(q, 404, ERR_NOT_FOUND, "upstream '%s' has no package '%s'",
                            q->upstream->name, q->name);
        return;
    }
    if (!p) {
        struct packages_client *owner;

        if (!fetch_slot_take(q, &owner))
            return;
        p = page_fetch_new(q);
        p->owner = owner;
        if (pool_submit(q->pkgs->pages, page_fetch_work, page_fetch_done, p, &err) < 0) {
            page_fetch_free(p);
            owner->running--;
            request_fail_status(q, 503, ERR_LIMIT, "the package cache is busy");
            return;
        }
        map_add(&q->pkgs->page_fetches, p->path, p);
    }
    q->state = REQUEST_FETCH;
    q->page_fetch = p;
    q->next = p->requests;
    p->requests = q;
}

void page_fetch_leave(struct packages_request *q)
{
    for (struct packages_request **at = &q->page_fetch->requests; *at; at = &(*at)->next)
        if (*at == q) {
            *at = q->next;
            return;
        }
}
