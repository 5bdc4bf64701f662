/*
 * Downloads of files, one for all that ask. The bytes go to a file in tmp/ and through the digest
 * of the index; only when that is right does the file get its name in the store.
 *
 * Large files are passed on while they come, but the last STREAM_HOLD bytes wait for the verdict: a
 * wrong file is so cut off before its declared length is complete, and no client takes it for
 * whole. What has been passed on is never changed afterwards: an upstream that starts again from
 * the beginning has its repeated bytes skipped, not written, so that the digest is over the very
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
    STREAM_MIN = 1 << 20, /* smaller ones wait for the verdict: an error is then a clean answer */
    STREAM_HOLD = 64 << 10,
    NOTIFY_EVERY = 128 << 10,
    TRIES = 5,
};

struct package_download {
    struct packages *reg;
    struct packages_client *owner; /* whose turn it is; NULL once that is forgotten */
    struct ask *asks;
    struct upstream *upstream;
    enum ecosystem eco;
    struct digest digest;
    char key[DIGEST_KEY_MAX];
    char *url, *note;   /* owned */
    char *name;         /* owned, of the package */
    uint64_t size, max; /* as the index says, 0: it does not; the limit */
    int fd;             /* of the file in tmp/, also read by the loop */
    char tmp[32];
    atomic_uint_fast64_t available,
        length; /* bytes written; declared by the upstream, 0: not yet */

    /* the worker's */
    struct hasher *hasher;
    uint64_t written, skip, told;
    /* its result */
    struct digest actual;
    uint64_t got;
    bool mismatch;
    struct err err;
};

static void package_download_free(struct package_download *f)
{
    fd_close(f->fd);
    hasher_free(f->hasher);
    free(f->url);
    free(f->note);
    free(f->name);
    err_done(&f->err);
    free(f);
}

/* -- the worker -- */

static void downloads_notify(struct package_download *f)
{
    uint64_t one = 1;

    atomic_store(&f->available, f->written);
    f->told = f->written;
    (void)!write(f->reg->wake_fd, &one, sizeof(one));
}

static int downloads_wrong_size(struct package_download *f, uint64_t is, struct err *err)
{
    f->mismatch = true;
    return err_set(err, ERR_INVALID, "'%s' has %llu bytes, the index says %llu", f->note,
                   (unsigned long long)is, (unsigned long long)f->size);
}

static int downloads_on_head(void *arg, const struct fetch_head *head, struct err *err)
{
    struct package_download *f = arg;
    uint64_t from = head->status == 206 ? head->from : 0;
    uint64_t total = head->length == UINT64_MAX ? 0 : from + head->length;

    if (from > f->written)
        return err_set(err, ERR_ENGINE, "'%s': the upstream leaves out bytes", f->note);
    f->skip = f->written - from;
    if (total > f->max)
        return err_set(err, ERR_LIMIT, "'%s' has %llu bytes, over the limit", f->note,
                       (unsigned long long)total);
    if (total && f->size && total != f->size)
        return downloads_wrong_size(f, total, err);
    if (total && !atomic_load(&f->length))
        atomic_store(&f->length, total);
    return 0;
}

static int downloads_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct package_download *f = arg;
    size_t skip = (size_t)MIN(f->skip, (uint64_t)len);
    int r;

    f->got += len;
    f->skip -= skip;
    data += skip;
    len -= skip;
    if (f->written + len > f->max || (f->size && f->written + len > f->size))
        return f->size ? downloads_wrong_size(f, f->written + len, err)
                       : err_set(err, ERR_LIMIT, "'%s' is over the limit", f->note);
    r = fd_write_all(f->fd, data, len);
    if (r < 0)
        return err_sys(err, -r, "write '%s'", f->note);
    hasher_add(f->hasher, data, len);
    f->written += len;
    if (f->written - f->told >= NOTIFY_EVERY)
        downloads_notify(f);
    return 0;
}

static int downloads_judge_status(struct package_download *f, int status)
{
    if (status == 200 || status == 206)
        return 0;
    if (status == 404 || status == 410)
        return err_set(&f->err, ERR_NOT_FOUND, "upstream '%s' has no file '%s'", f->upstream->name,
                       f->note);
    if (status == 401 || status == 403)
        return err_set(&f->err, ERR_DENIED, "upstream '%s' refuses '%s'", f->upstream->name,
                       f->note);
    return err_set(&f->err, ERR_ENGINE, "upstream '%s' answers %d for '%s'", f->upstream->name,
                   status, f->note);
}

static int downloads_try_once(struct package_download *f)
{
    struct fetch_head head = {0};
    struct fetch fetch = {.url = f->url,
                          .from = f->written,
                          .size_max = f->max,
                          .on_head = downloads_on_head,
                          .on_data = downloads_on_data,
                          .arg = f};
    int r = fetch_run(f->upstream->fetcher, &fetch, &head, &f->err);

    if (r >= 0)
        r = downloads_judge_status(f, head.status);
    fetch_head_done(&head);
    return r;
}

static bool downloads_is_passing(int code)
{
    return code == -ERR_ENGINE || code == -ERR_TIMEOUT;
}

/* Goes on where it broke off. A try that brought bytes does not count. */
static int download(struct package_download *f)
{
    int r = -ERR_ENGINE;

    for (int i = 0; i < TRIES && downloads_is_passing(r); i++) {
        uint64_t before = f->written;
        struct timespec pause = {.tv_nsec = (long)(100 * USEC_PER_MSEC * 1000) << MIN(i, 3)};

        if (i) {
            pause.tv_sec = pause.tv_nsec / 1000000000;
            pause.tv_nsec %= 1000000000;
            clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        }
        err_done(&f->err);
        f->err = (struct err)ERR_INIT;
        r = downloads_try_once(f);
        if (r < 0 && f->written - before >= MIB(1))
            i = MAX(i - 1, 0);
    }
    return r;
}

static void package_download_work(void *arg)
{
    struct package_download *f = arg;

    if (download(f) < 0)
        return;
    downloads_notify(f);
    hasher_end(f->hasher, &f->actual);
    if (!digest_equal(&f->actual, &f->digest) && GUARD("digests")) {
        f->mismatch = true;
        err_set(&f->err, ERR_INVALID,
                "'%s' is not what the index promised: its %s is %.16s..., not %.16s...", f->note,
                digest_algo_name(f->digest.algo), f->actual.hex, f->digest.hex);
        return;
    }
    (void)blob_commit(f->reg->dirfd, f->fd, f->tmp, &f->digest, f->note, &f->err);
}

/* -- the loop -- */

static void downloads_follow(struct ask *a)
{
    struct package_download *f = a->package_download;
    uint64_t length = atomic_load(&f->length), available = atomic_load(&f->available);

    if (length < STREAM_MIN || a->head)
        return;
    if (!a->started) {
        a->fd = fcntl(f->fd, F_DUPFD_CLOEXEC, 3);
        if (a->fd < 0)
            return; /* it waits for the end instead */
        ask_begin_stream(a, length);
    }
    ask_pump(a, MIN(available, GUARD("held back") ? length - STREAM_HOLD : length));
}

static void downloads_on_wake(void *arg, int events _unused_)
{
    struct packages *reg = arg;
    uint64_t count;
    void *value;

    (void)!read(reg->wake_fd, &count, sizeof(count));
    for (size_t i = 0; map_next(&reg->package_downloads, &i, NULL, &value);) {
        struct package_download *f = value;

        for (struct ask *a = f->asks, *next; a; a = next) {
            next = a->next;
            downloads_follow(a);
        }
    }
}

static void downloads_finish_ask(struct ask *a, struct package_download *f)
{
    uint64_t size;
    int fd;

    a->state = ASK_START;
    a->package_download = NULL;
    if (f->err.code != ERR_NONE) {
        ask_fail(a, &f->err);
        return;
    }
    if (a->started) {
        a->state = ASK_SEND;
        ask_pump(a, a->length);
        return;
    }
    fd = blobs_use(&a->reg->blobs, &f->digest, &size);
    if (fd < 0)
        ask_fail_status(a, 500, ERR_SYSTEM, "'%s' is gone from the store again", f->note);
    else
        ask_send_blob(a, fd, size, false);
}

static void downloads_report_mismatch(struct package_download *f)
{
    struct packages *reg = f->reg;
    struct packages_client *box = f->asks ? f->asks->box : NULL; /* of one that waits for it */

    reg->counters[f->eco].mismatches++;
    for (struct ask *a = f->asks; a; a = a->next)
        ask_counters(a)->mismatches++;
    if (box && !packages_may_tell(box))
        return;
    packages_event(reg, "mismatch", "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "sandbox",
                   box ? box->id : "", "ecosystem", ecosystem_name(f->eco), "name", f->name, "file",
                   f->note, "upstream", f->upstream->name, "expected", f->digest.hex, "actual",
                   f->actual.hex, "message", f->err.msg);
}

static void downloads_count_download(struct package_download *f)
{
    struct packages *reg = f->reg;

    reg->counters[f->eco].bytes_upstream += f->got;
    if (f->asks && f->asks->box)
        f->asks->box->counters[f->eco].bytes_upstream += f->got;
    if (f->mismatch)
        downloads_report_mismatch(f);
    /* Whether the index answers is another matter: files may lie elsewhere. */
    if (f->err.code == ERR_NONE) {
        reg->counters[f->eco].weak += f->digest.algo == DIGEST_SHA1;
        blobs_add(&reg->blobs, &f->digest, f->written);
    }
}

static void package_download_done(void *arg)
{
    struct package_download *f = arg;

    map_remove(&f->reg->package_downloads, f->key);
    if (f->err.code != ERR_NONE)
        unlinkat(f->reg->dirfd, f->tmp, 0);
    downloads_count_download(f);
    while (f->asks) {
        struct ask *a = f->asks;

        f->asks = a->next;
        a->next = NULL;
        downloads_finish_ask(a, f);
    }
    fetch_slot_end(f->owner);
    package_download_free(f);
}

void package_download_disown(struct package_download *f, const struct packages_client *box)
{
    if (f->owner == box)
        f->owner = NULL;
}

static int package_download_new(struct ask *a, const struct page_file *file,
                                struct package_download **ret, struct err *err)
{
    struct package_download *f = xnew0(struct package_download);
    int r;

    f->reg = a->reg;
    f->upstream = a->upstream;
    f->eco = a->eco;
    f->digest = a->digest;
    digest_key(&f->digest, f->key);
    f->url = xasprintf("%s%s", file->url, a->metadata ? ".metadata" : "");
    f->note = xasprintf("%s/%s/%s%s", ecosystem_name(a->eco), a->name, a->file,
                        a->metadata ? ".metadata" : "");
    f->name = xstrdup(a->name);
    f->size = a->metadata ? 0 : file->size;
    f->max = a->metadata ? MIN(MIB(64), a->reg->config.artifact_max) : a->reg->config.artifact_max;
    f->fd = -1;
    r = blob_tmp(a->reg->dirfd, f->tmp, &f->fd, err);
    if (r >= 0) {
        f->hasher = hasher_new(f->digest.algo);
        r = pool_submit(a->reg->downloads, package_download_work, package_download_done, f, err);
    }
    if (r < 0) {
        if (f->fd >= 0)
            unlinkat(a->reg->dirfd, f->tmp, 0);
        package_download_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

void package_download_join(struct ask *a, const struct page_file *file)
{
    _cleanup_err_ struct err err = ERR_INIT;
    char key[DIGEST_KEY_MAX];
    struct package_download *f;

    if (a->reg->config.offline == OFFLINE_ALWAYS) {
        ask_fail_status(a, STATUS_OFFLINE, ERR_ENGINE,
                        "'%s' is not in the cache and the registry cache is offline", a->file);
        return;
    }
    digest_key(&a->digest, key);
    f = map_get(&a->reg->package_downloads, key);
    if (!f) {
        struct packages_client *owner;

        if (!fetch_slot_take(a, &owner))
            return;
        if (package_download_new(a, file, &f, &err) < 0) {
            owner->running--;
            ask_fail(a, &err);
            return;
        }
        f->owner = owner;
        map_add(&a->reg->package_downloads, key, f);
    }
    a->reg->counters[a->eco].misses++;
    ask_counters(a)->misses++;
    a->state = ASK_DOWNLOAD;
    a->package_download = f;
    a->next = f->asks;
    f->asks = a;
}

void package_download_leave(struct ask *a)
{
    for (struct ask **at = &a->package_download->asks; *at; at = &(*at)->next)
        if (*at == a) {
            *at = a->next;
            return;
        }
}

int package_downloads_init(struct packages *reg, struct err *err)
{
    reg->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (reg->wake_fd < 0)
        return err_sys(err, errno, "make an eventfd");
    reg->wake = loop_watch_new(reg->loop, reg->wake_fd, downloads_on_wake, reg);
    if (!reg->wake)
        return err_set(err, ERR_SYSTEM, "cannot watch an eventfd");
    loop_watch_set(reg->wake, LOOP_READ);
    return 0;
}

void package_downloads_done(struct packages *reg)
{
    loop_watch_free(TAKE_PTR(reg->wake));
    reg->wake_fd = fd_close(reg->wake_fd);
}
