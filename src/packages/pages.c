/*
 * Index pages: kept, fetched, looked into. A look is a job of its own for each request; a fetch is
 * one for all that wait for the same page.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "lib/loop/pool.h"
#include "packages/npm.h"
#include "packages/packages.h"
#include "packages/pypi.h"

#define PAGE_TIME_MAX (120 * USEC_PER_SEC)
enum {
    PAGE_TRIES = 2,
    YOUNG = 5, /* seconds in which a file that a page does not list is not looked for again */
    PARSE_ALONE = 4 << 20,
};

/* -- looking -- */

enum pages_found { FOUND, FOUND_OLD, FOUND_NO_FILE, FOUND_NOTHING };

struct look {
    struct ask *ask;
    int dirfd;
    char *path, *host, *file;
    char *other; /* where the file may be listed as well; NULL: nowhere */
    const char *section;
    bool any_age, metadata;
    int64_t life;
    char *policy;

    enum pages_found found;
    bool young;      /* the upstream has been asked for this page just now */
    struct buf body; /* the page, or the list that file_found points into */
    struct page_file hit;
    struct err err;
};

static void pages_look_free(struct look *l)
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

static enum pages_found pages_look_for_file(struct look *l, const struct page *page)
{
    if (page_read(page, PAGE_FILES, &l->body, &l->err) < 0)
        return FOUND_NOTHING;
    return page_file_find(&l->body, l->file, &l->hit) && (!l->metadata || l->hit.has_metadata)
               ? FOUND
               : FOUND_NO_FILE;
}

static enum pages_found pages_look_for_page(struct look *l, const struct page *page)
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
 * A page in a future that the clock has left again counts as old. A file's digest does not change,
 * so for a file any page that lists it will do.
 */
static void pages_look_into(struct look *l, const char *path)
{
    struct page page = {.fd = -1};
    int64_t age;

    l->found = FOUND_NOTHING;
    if (page_open(l->dirfd, path, &page) <= 0)
        return;
    age = time(NULL) - page.fetched;
    l->young = age >= 0 && age < YOUNG;
    if (l->file)
        l->found = pages_look_for_file(l, &page);
    else if (!l->any_age && (age < 0 || age >= l->life || !STREQ(page.policy, l->policy)))
        l->found = FOUND_OLD;
    else
        l->found = pages_look_for_page(l, &page);
    page_done(&page);
}

/* The other page is only for what it may have: whether to ask the upstream, the first one says. */
static void pages_look_work(void *arg)
{
    struct look *l = arg;
    enum pages_found first;
    bool young;

    pages_look_into(l, l->path);
    if (l->found == FOUND || !l->other)
        return;
    first = l->found;
    young = l->young;
    buf_clear(&l->body);
    err_done(&l->err);
    l->err = (struct err)ERR_INIT;
    pages_look_into(l, l->other);
    if (l->found != FOUND) {
        l->found = first;
        l->young = young;
    }
}

static void page_fetch_join(struct ask *a);

static bool pages_may_ask_upstream(const struct ask *a)
{
    return !a->fetched && a->reg->config.offline != OFFLINE_ALWAYS;
}

/* There is nothing to show, and nobody left to ask. */
static void page_is_missing(struct ask *a)
{
    if (a->fetch_err.code != ERR_NONE)
        ask_fail(a, &a->fetch_err);
    else if (a->reg->config.offline == OFFLINE_ALWAYS)
        ask_fail_status(a, STATUS_OFFLINE, ERR_ENGINE,
                        "'%s' is not in the cache and the registry cache is offline", a->name);
    else if (a->file)
        ask_fail_status(a, 404, ERR_NOT_FOUND, "'%s' has no file '%s'", a->name, a->file);
    else
        ask_fail_status(a, 503, ERR_LIMIT, "the index page of '%s' has been dropped again",
                        a->name);
}

static void pages_on_file(struct ask *a, const struct page_file *f)
{
    struct policy_item item = {
        .eco = a->eco, .name = a->name, .version = f->version, .uploaded = f->uploaded};
    char reason[POLICY_REASON_MAX];
    uint64_t size;
    int fd;

    if (a->eco == ECO_PYPI && !digest_equal(&a->want, &f->digest)) {
        ask_fail_status(a, 404, ERR_NOT_FOUND, "'%s' is not the digest of '%s'", a->want.hex,
                        a->file);
        return;
    }
    if (policy_denies(&a->reg->config.policy, &item, time(NULL), reason)) {
        ask_fail_status(a, 403, ERR_DENIED, "%s", reason);
        return;
    }
    a->digest = a->metadata ? f->metadata : f->digest;
    fd = blobs_use(&a->reg->blobs, &a->digest, &size);
    if (fd >= 0)
        ask_send_blob(a, fd, size, true);
    else
        package_download_join(a, f);
}

static void pages_look_done(void *arg)
{
    struct look *l = arg;
    struct ask *a = l->ask;

    a->state = ASK_START;
    if (!a->req)
        ask_free(a);
    else if (l->found == FOUND && l->file)
        pages_on_file(a, &l->hit);
    else if (l->found == FOUND)
        ask_send_page(a, &l->body);
    else if (l->found == FOUND_NO_FILE && l->young)
        page_is_missing(a);
    else if (pages_may_ask_upstream(a))
        page_fetch_join(a);
    else
        page_is_missing(a);
    pages_look_free(l);
}

/* Old pages are good enough when the upstream is not to be asked or has not answered. */
static bool pages_any_age_will_do(const struct ask *a)
{
    if (a->fetched || a->reg->config.offline == OFFLINE_ALWAYS)
        return true;
    return a->reg->config.offline == OFFLINE_AUTO && a->upstream->down &&
           time_mono() < a->upstream->down_until;
}

static char *pages_copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

void pages_look(struct ask *a)
{
    struct look *l = xnew0(struct look);
    _cleanup_err_ struct err err = ERR_INIT;

    l->ask = a;
    l->dirfd = a->reg->dirfd;
    l->path = xstrdup(a->path);
    l->other = pages_copy(a->other_path);
    l->host = pages_copy(a->host);
    l->file = pages_copy(a->file);
    l->section = a->section;
    l->metadata = a->metadata;
    l->any_age = pages_any_age_will_do(a);
    a->stale |= l->any_age && !a->fetched && a->reg->config.offline == OFFLINE_AUTO;
    l->life = (int64_t)a->reg->config.metadata_life;
    l->policy = xstrdup(a->reg->config.policy.print);
    l->body = (struct buf)BUF_INIT(PAGE_MAX + PAGE_MAX / 4);
    a->state = ASK_JOB;
    if (pool_submit(a->reg->disk, pages_look_work, pages_look_done, l, &err) >= 0)
        return;
    pages_look_free(l);
    a->state = ASK_START;
    ask_fail_status(a, 503, ERR_LIMIT, "the registry cache is busy");
}

/* -- fetching -- */

struct page_fetch {
    struct packages *reg;
    struct packages_client *owner; /* whose turn it is; NULL once that is forgotten */
    struct ask *asks;
    struct upstream *upstream; /* its fetcher is for any thread */
    enum ecosystem eco;
    char *path, *name, *url;
    bool full;
    uint64_t size_max;

    struct buf body;
    uint64_t got, received; /* unpacked; as it came */
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

static int pages_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct page_fetch *p = arg;

    p->got += len;
    return buf_append(&p->body, data, len) < 0
               ? err_set(err, ERR_LIMIT, "index page over %zu bytes", p->body.max)
               : 0;
}

/*
 * A parsed document takes many times its length. Large ones are read one at a time, so that sixteen
 * hostile ones at once do not take sixteen times that.
 */
static pthread_mutex_t parse_lock = PTHREAD_MUTEX_INITIALIZER;

static int pages_make_page(struct page_fetch *p, const struct fetch_head *head,
                           struct page_draft *draft)
{
    const struct policy *policy = &p->reg->config.policy; /* never changes */

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

static void pages_keep_page(struct page_fetch *p, const struct fetch_head *head)
{
    struct page_draft draft = {.etag = head->etag, .policy = p->reg->config.policy.print};

    bool alone = p->body.len > PARSE_ALONE;
    int r;

    if (alone)
        pthread_mutex_lock(&parse_lock);
    r = pages_make_page(p, head, &draft);
    if (alone)
        pthread_mutex_unlock(&parse_lock);
    buf_done(&p->body);
    if (r >= 0)
        (void)page_write(p->reg->dirfd, p->path, &draft, &p->err);
    page_draft_done(&draft);
}

/* With a least age, npm's dates are needed, which only the long document has. */
static const char *pages_accept_of(const struct page_fetch *p)
{
    if (p->eco == ECO_PYPI)
        return PYPI_ACCEPT;
    return p->full || p->reg->config.policy.min_age ? "application/json" : NPM_ACCEPT_ABBREVIATED;
}

static int pages_try_fetch(struct page_fetch *p, const char *etag, struct fetch_head *head)
{
    struct fetch f = {.url = p->url,
                      .accept = pages_accept_of(p),
                      .etag = etag,
                      .size_max = p->size_max,
                      .time_max = PAGE_TIME_MAX,
                      .compressed = true,
                      .on_data = pages_on_data,
                      .arg = p,
                      .received = &p->received};

    err_done(&p->err);
    p->err = (struct err)ERR_INIT;
    buf_clear(&p->body);
    return fetch_run(p->upstream->fetcher, &f, head, &p->err);
}

static bool pages_is_passing(int code)
{
    return code == -ERR_ENGINE || code == -ERR_TIMEOUT;
}

static void pages_judge_status(struct page_fetch *p)
{
    if (p->status == 404 || p->status == 410) {
        unlinkat(p->reg->dirfd, p->path, 0);
        err_set(&p->err, ERR_NOT_FOUND, "upstream '%s' has no package '%s'", p->upstream->name,
                p->name);
    } else if (p->status == 401 || p->status == 403) {
        err_set(&p->err, ERR_DENIED, "upstream '%s' refuses '%s' (status %d)", p->upstream->name,
                p->name, p->status);
    } else {
        err_set(&p->err, ERR_ENGINE, "upstream '%s' answers %d for '%s'", p->upstream->name,
                p->status, p->name);
    }
}

static void page_fetch_work(void *arg)
{
    struct page_fetch *p = arg;
    struct page page = {.fd = -1};
    struct fetch_head head = {0};
    const char *etag = NULL;
    int r = -ERR_ENGINE;

    if (page_open(p->reg->dirfd, p->path, &page) > 0 &&
        STREQ(page.policy, p->reg->config.policy.print))
        etag = page.etag;
    for (int i = 0; i < PAGE_TRIES && pages_is_passing(r); i++)
        r = pages_try_fetch(p, etag, &head);
    p->status = r < 0 ? 0 : head.status;
    if (p->status == 304 && page.fd >= 0)
        page_touch(&page);
    else if (p->status == 200)
        pages_keep_page(p, &head);
    else if (r >= 0)
        pages_judge_status(p);
    fetch_head_done(&head);
    page_done(&page);
}

/* What the upstream says is passed on; when it said nothing, what is kept must do. */
static void pages_answer_ask(struct ask *a, const struct page_fetch *p)
{
    bool unreached = p->err.code == ERR_ENGINE || p->err.code == ERR_TIMEOUT;

    a->state = ASK_START;
    a->page_fetch = NULL;
    a->fetched = true;
    if (p->err.code != ERR_NONE && (!unreached || a->reg->config.offline == OFFLINE_NEVER)) {
        ask_fail(a, &p->err);
        return;
    }
    if (p->err.code != ERR_NONE) {
        a->stale = true;
        err_copy(&a->fetch_err, &p->err);
    }
    pages_look(a);
}

static void page_fetch_done(void *arg)
{
    struct page_fetch *p = arg;
    struct packages *reg = p->reg;

    map_remove(&reg->page_fetches, p->path);
    if (p->status == 404 || p->status == 410)
        packages_set_missing(reg, p->path);
    else if (p->status == 200)
        trim_note(reg, p->got);
    reg->counters[p->eco].bytes_upstream += p->received;
    if (p->asks && p->asks->box)
        p->asks->box->counters[p->eco].bytes_upstream += p->received;
    if (p->err.code == ERR_ENGINE || p->err.code == ERR_TIMEOUT)
        packages_upstream_failed(reg, p->upstream, &p->err);
    else
        packages_upstream_works(reg, p->upstream);
    while (p->asks) {
        struct ask *a = p->asks;

        p->asks = a->next;
        a->next = NULL;
        pages_answer_ask(a, p);
    }
    fetch_slot_end(p->owner);
    page_fetch_free(p);
}

void page_fetch_disown(struct page_fetch *p, const struct packages_client *box)
{
    if (p->owner == box)
        p->owner = NULL;
}

static char *page_url(const struct ask *a)
{
    const char *slash = strchr(a->name, '/');

    if (a->eco == ECO_PYPI)
        return xasprintf("%s%s/", a->upstream->url, a->name);
    if (!slash)
        return xasprintf("%s%s", a->upstream->url, a->name);
    return xasprintf("%s%.*s%%2f%s", a->upstream->url, (int)(slash - a->name), a->name, slash + 1);
}

static struct page_fetch *page_fetch_new(const struct ask *a)
{
    struct page_fetch *p = xnew0(struct page_fetch);

    p->reg = a->reg;
    p->upstream = a->upstream;
    p->eco = a->eco;
    p->path = xstrdup(a->path);
    p->name = xstrdup(a->name);
    p->url = page_url(a);
    p->full = a->full;
    p->size_max = a->reg->config.metadata_max;
    p->body = (struct buf)BUF_INIT((size_t)p->size_max);
    return p;
}

static void page_fetch_join(struct ask *a)
{
    struct page_fetch *p = map_get(&a->reg->page_fetches, a->path);
    _cleanup_err_ struct err err = ERR_INIT;

    if (!p && packages_is_missing(a->reg, a->path)) {
        ask_fail_status(a, 404, ERR_NOT_FOUND, "upstream '%s' has no package '%s'",
                        a->upstream->name, a->name);
        return;
    }
    if (!p) {
        struct packages_client *owner;

        if (!fetch_slot_take(a, &owner))
            return;
        p = page_fetch_new(a);
        p->owner = owner;
        if (pool_submit(a->reg->pages, page_fetch_work, page_fetch_done, p, &err) < 0) {
            page_fetch_free(p);
            owner->running--;
            ask_fail_status(a, 503, ERR_LIMIT, "the registry cache is busy");
            return;
        }
        map_add(&a->reg->page_fetches, p->path, p);
    }
    a->state = ASK_FETCH;
    a->page_fetch = p;
    a->next = p->asks;
    p->asks = a;
}

void page_fetch_leave(struct ask *a)
{
    for (struct ask **at = &a->page_fetch->asks; *at; at = &(*at)->next)
        if (*at == a) {
            *at = a->next;
            return;
        }
}
