/*
 * Downloads package files. All requests for one file share one download. The bytes go to a file in
 * tmp/ and are hashed on the way. The file gets its name in the store only when its digest is the
 * one of the index page.
 *
 * Large files are streamed to clients during the download, but the last STREAM_HOLD bytes wait for
 * the check of the digest. A wrong file is therefore cut off before its declared length, and no
 * client takes it for complete. Bytes that were sent never change: when an upstream starts again
 * from the beginning, the repeated bytes are skipped, not written. So the digest covers exactly the
 * bytes that clients have.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "lib/loop/loop.h"
#include "lib/loop/pool.h"
#include "packages/packages.h"

enum {
    STREAM_MIN =
        1 << 20, /* smaller files are sent after the check: an error is then a clean response */
    STREAM_HOLD = 64 << 10,
    NOTIFY_EVERY = 128 << 10,
    TRIES = 5,
};

struct package_download {
    struct packages *pkgs;
    struct packages_client *owner;     /* its fetch slot is in use; NULL once the client is gone */
    struct packages_request *requests; /* the requests that wait */
    struct upstream *upstream;
    enum ecosystem eco;
    struct digest digest;
    char key[DIGEST_KEY_MAX];
    char *url, *note;   /* owned */
    char *name;         /* owned, of the package */
    uint64_t size, max; /* the size in the index page, 0: unknown; the limit */
    int fd;             /* the file in tmp/; the loop reads it, too */
    char tmp[32];
    atomic_uint_fast64_t available,
        length; /* bytes written; length that the upstream declared, 0: not yet */

    /* Only the worker uses these. */
    struct hasher *hasher;
    uint64_t written, skip, reported;
    /* The result of the worker. */
    struct digest actual;
    uint64_t got;
    bool mismatch;
    struct err err;
};

static void package_download_free(struct package_download *d)
{
    fd_close(d->fd);
    hasher_free(d->hasher);
    free(d->url);
    free(d->note);
    free(d->name);
    err_done(&d->err);
    free(d);
}

/* -- the worker -- */

static void package_download_notify(struct package_download *d)
{
    uint64_t one = 1;

    atomic_store(&d->available, d->written);
    d->reported = d->written;
    (void)!write(d->pkgs->wake_fd, &one, sizeof(one));
}

static int package_download_wrong_size(struct package_download *d, uint64_t is, struct err *err)
{
    d->mismatch = true;
    return err_set(err, ERR_INVALID, "'%s' has %llu bytes (the index page lists %llu)", d->note,
                   (unsigned long long)is, (unsigned long long)d->size);
}

static int package_download_on_head(void *arg, const struct fetch_head *head, struct err *err)
{
    struct package_download *d = arg;
    uint64_t from = head->status == 206 ? head->from : 0;
    uint64_t total = head->length == UINT64_MAX ? 0 : from + head->length;

    if (from > d->written)
        return err_set(err, ERR_ENGINE, "'%s': the upstream skips bytes", d->note);
    d->skip = d->written - from;
    if (total > d->max)
        return err_set(err, ERR_LIMIT, "'%s' has %llu bytes (the limit is %llu)", d->note,
                       (unsigned long long)total, (unsigned long long)d->max);
    if (total && d->size && total != d->size)
        return package_download_wrong_size(d, total, err);
    if (total && !atomic_load(&d->length))
        atomic_store(&d->length, total);
    return 0;
}

static int package_download_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct package_download *d = arg;
    size_t skip = (size_t)MIN(d->skip, (uint64_t)len);
    int r;

    d->got += len;
    d->skip -= skip;
    data += skip;
    len -= skip;
    if (d->written + len > d->max || (d->size && d->written + len > d->size))
        return d->size ? package_download_wrong_size(d, d->written + len, err)
                       : err_set(err, ERR_LIMIT, "'%s' is larger than the limit of %llu bytes",
                                 d->note, (unsigned long long)d->max);
    r = fd_write_all(d->fd, data, len);
    if (r < 0)
        return err_sys(err, -r, "write '%s'", d->note);
    hasher_add(d->hasher, data, len);
    d->written += len;
    if (d->written - d->reported >= NOTIFY_EVERY)
        package_download_notify(d);
    return 0;
}

static int package_download_judge_status(struct package_download *d, int status)
{
    if (status == 200 || status == 206)
        return 0;
    if (status == 404 || status == 410)
        return err_set(&d->err, ERR_NOT_FOUND, "upstream '%s' has no file '%s'", d->upstream->name,
                       d->note);
    if (status == 401 || status == 403)
        return err_set(&d->err, ERR_DENIED, "upstream '%s' refuses '%s'", d->upstream->name,
                       d->note);
    return err_set(&d->err, ERR_ENGINE, "upstream '%s': unexpected HTTP status %d for '%s'",
                   d->upstream->name, status, d->note);
}

static int package_download_try(struct package_download *d)
{
    struct fetch_head head = {0};
    struct fetch fetch = {.url = d->url,
                          .from = d->written,
                          .size_max = d->max,
                          .on_head = package_download_on_head,
                          .on_data = package_download_on_data,
                          .arg = d};
    int r = fetch_run(d->upstream->fetcher, &fetch, &head, &d->err);

    if (r == 0)
        r = package_download_judge_status(d, head.status);
    fetch_head_done(&head);
    return r;
}

/* Each try goes on where the last one broke off. A try that brought 1 MiB does not count. */
static int package_download_run(struct package_download *d)
{
    int r = -ERR_ENGINE;

    for (int i = 0; i < TRIES && (r == -ERR_ENGINE || r == -ERR_TIMEOUT); i++) {
        uint64_t before = d->written;
        struct timespec pause = {.tv_nsec = (long)(100 * USEC_PER_MSEC * 1000) << MIN(i, 3)};

        if (i) {
            pause.tv_sec = pause.tv_nsec / 1000000000;
            pause.tv_nsec %= 1000000000;
            clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        }
        err_done(&d->err);
        d->err = (struct err)ERR_INIT;
        r = package_download_try(d);
        if (r < 0 && d->written - before >= MIB(1))
            i = MAX(i - 1, 0);
    }
    return r;
}

static void package_download_work(void *arg)
{
    struct package_download *d = arg;

    if (package_download_run(d) < 0)
        return;
    package_download_notify(d);
    hasher_end(d->hasher, &d->actual);
    if (!digest_equal(&d->actual, &d->digest) && GUARD("digests")) {
        d->mismatch = true;
        err_set(&d->err, ERR_INVALID,
                "'%s': wrong digest (%s is %.16s..., the index page lists %.16s...)", d->note,
                digest_algo_name(d->digest.algo), d->actual.hex, d->digest.hex);
        return;
    }
    (void)blob_commit(d->pkgs->dirfd, d->fd, d->tmp, &d->digest, d->note, &d->err);
}

/* -- the loop -- */

static void package_download_stream(struct packages_request *q)
{
    struct package_download *d = q->package_download;
    uint64_t length = atomic_load(&d->length), available = atomic_load(&d->available);

    if (length < STREAM_MIN || q->head)
        return;
    if (!q->started) {
        q->fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 3);
        if (q->fd < 0)
            return; /* the request gets the file after the download */
        request_begin_stream(q, length);
    }
    request_pump(q, MIN(available, GUARD("held back") ? length - STREAM_HOLD : length));
}

static void package_download_on_wake(void *arg, int events _unused_)
{
    struct packages *pkgs = arg;
    uint64_t count;
    void *value;

    (void)!read(pkgs->wake_fd, &count, sizeof(count));
    for (size_t i = 0; map_next(&pkgs->package_downloads, &i, NULL, &value);) {
        struct package_download *d = value;

        for (struct packages_request *q = d->requests, *next; q; q = next) {
            next = q->next;
            package_download_stream(q);
        }
    }
}

static void package_download_answer(struct packages_request *q, struct package_download *d)
{
    uint64_t size;
    int fd;

    q->state = REQUEST_START;
    q->package_download = NULL;
    if (d->err.code != ERR_NONE) {
        request_fail(q, &d->err);
        return;
    }
    if (q->started) {
        q->state = REQUEST_SEND;
        request_pump(q, q->length);
        return;
    }
    fd = blobs_use(&q->pkgs->blobs, &d->digest, &size);
    if (fd < 0)
        request_fail_status(q, 500, ERR_SYSTEM,
                            "'%s' was removed from the store before it was sent; try again",
                            d->note);
    else
        request_send_blob(q, fd, size, false);
}

static void package_download_report_mismatch(struct package_download *d)
{
    struct packages *pkgs = d->pkgs;
    struct packages_client *client =
        d->requests ? d->requests->client : NULL; /* the client of the first request */

    pkgs->counters[d->eco].mismatches++;
    for (struct packages_request *q = d->requests; q; q = q->next)
        request_counters(q)->mismatches++;
    if (client && !packages_may_report(client))
        return;
    packages_event(pkgs, "mismatch", "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "sandbox",
                   client ? client->id : "", "ecosystem", ecosystem_name(d->eco), "name", d->name,
                   "file", d->note, "upstream", d->upstream->name, "expected", d->digest.hex,
                   "actual", d->actual.hex, "message", d->err.msg);
}

static void package_download_count(struct package_download *d)
{
    struct packages *pkgs = d->pkgs;

    pkgs->counters[d->eco].bytes_upstream += d->got;
    if (d->requests && d->requests->client)
        d->requests->client->counters[d->eco].bytes_upstream += d->got;
    if (d->mismatch)
        package_download_report_mismatch(d);
    /* A failed download does not mark the upstream as down: its files may be on another host. */
    if (d->err.code == ERR_NONE) {
        pkgs->counters[d->eco].weak += d->digest.algo == DIGEST_SHA1;
        blobs_add(&pkgs->blobs, &d->digest, d->written);
    }
}

static void package_download_done(void *arg)
{
    struct package_download *d = arg;

    map_remove(&d->pkgs->package_downloads, d->key);
    if (d->err.code != ERR_NONE)
        unlinkat(d->pkgs->dirfd, d->tmp, 0);
    package_download_count(d);
    while (d->requests) {
        struct packages_request *q = d->requests;

        d->requests = q->next;
        q->next = NULL;
        package_download_answer(q, d);
    }
    fetch_slot_end(d->owner);
    package_download_free(d);
}

void package_download_disown(struct package_download *d, const struct packages_client *client)
{
    if (d->owner == client)
        d->owner = NULL;
}

static int package_download_new(struct packages_request *q, const struct page_file *file,
                                struct package_download **ret, struct err *err)
{
    struct package_download *d = xnew0(struct package_download);
    int r;

    d->pkgs = q->pkgs;
    d->upstream = q->upstream;
    d->eco = q->eco;
    d->digest = q->digest;
    digest_key(&d->digest, d->key);
    d->url = xasprintf("%s%s", file->url, q->metadata ? ".metadata" : "");
    d->note = xasprintf("%s/%s/%s%s", ecosystem_name(q->eco), q->name, q->file,
                        q->metadata ? ".metadata" : "");
    d->name = xstrdup(q->name);
    d->size = q->metadata ? 0 : file->size;
    d->max =
        q->metadata ? MIN(MIB(64), q->pkgs->config.artifact_max) : q->pkgs->config.artifact_max;
    d->fd = -1;
    r = blob_tmp(q->pkgs->dirfd, d->tmp, &d->fd, err);
    if (r < 0) {
        package_download_free(d);
        return r;
    }
    d->hasher = hasher_new(d->digest.algo);
    r = pool_submit(q->pkgs->downloads, package_download_work, package_download_done, d, err);
    if (r < 0) {
        unlinkat(q->pkgs->dirfd, d->tmp, 0);
        package_download_free(d);
        return r;
    }
    *ret = d;
    return 0;
}

void package_download_join(struct packages_request *q, const struct page_file *file)
{
    _cleanup_err_ struct err err = ERR_INIT;
    char key[DIGEST_KEY_MAX];
    struct package_download *d;

    if (q->pkgs->config.offline == OFFLINE_ALWAYS) {
        request_fail_status(q, STATUS_OFFLINE, ERR_ENGINE,
                            "'%s' is not in the cache and the package cache is offline", q->file);
        return;
    }
    digest_key(&q->digest, key);
    d = map_get(&q->pkgs->package_downloads, key);
    if (!d) {
        struct packages_client *owner;

        if (!fetch_slot_take(q, &owner))
            return;
        if (package_download_new(q, file, &d, &err) < 0) {
            owner->running--;
            request_fail(q, &err);
            return;
        }
        d->owner = owner;
        map_add(&q->pkgs->package_downloads, key, d);
    }
    q->pkgs->counters[q->eco].misses++;
    request_counters(q)->misses++;
    q->state = REQUEST_DOWNLOAD;
    q->package_download = d;
    q->next = d->requests;
    d->requests = q;
}

void package_download_leave(struct packages_request *q)
{
    for (struct packages_request **at = &q->package_download->requests; *at; at = &(*at)->next)
        if (*at == q) {
            *at = q->next;
            return;
        }
}

int package_downloads_init(struct packages *pkgs, struct err *err)
{
    pkgs->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pkgs->wake_fd < 0)
        return err_sys(err, errno, "make an eventfd");
    pkgs->wake = loop_watch_new(pkgs->loop, pkgs->wake_fd, package_download_on_wake, pkgs);
    if (!pkgs->wake)
        return err_set(err, ERR_SYSTEM, "cannot watch an eventfd");
    loop_watch_set(pkgs->wake, LOOP_READ);
    return 0;
}

void package_downloads_done(struct packages *pkgs)
{
    loop_watch_free(TAKE_PTR(pkgs->wake));
    pkgs->wake_fd = fd_close(pkgs->wake_fd);
}
