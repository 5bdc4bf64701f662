#include "image/transfer/pull.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/oci/layout.h"
#include "image/oci/manifest.h"
#include "image/transfer/blob.h"
#include "image/transfer/events.h"
#include "image/transfer/repository.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { AT_ONCE = 4, INDEX_DEPTH_MAX = 2, TICK_MS = 200 };
#define TOTAL_MAX (UINT64_C(64) << 30)

static const char accept_manifests[] =
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json";

struct pull_layer {
    struct oci_descriptor d;
    bool wanted; /* not in the store, and not the same as an earlier layer */
    int fd;      /* owned: the downloaded file; -1: not downloaded */
    _Atomic uint64_t done;
};

struct pull {
    const struct settings *s;
    const struct pull_fds *fds;
    struct repository_name name;
    struct repository *repository;
    char *manifest, *config; /* owned */
    size_t manifest_len, config_len;
    struct pull_layer *layers;
    size_t n;
    uint64_t total;

    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t news;  /* a thread has ended */
    size_t next, ended;   /* next layer to download; threads that have ended */
    struct err err;       /* the first failure */
    atomic_bool stop;
};

/* ---- documents ---- */

static int pull_check_bytes(const struct oci_descriptor *d, const char *text, size_t len,
                            struct err *err)
{
    char digest[DIGEST_MAX];

    digest_of(text, len, digest);
    if (STREQ(digest, d->digest) && (d->size == UINT64_MAX || d->size == len))
        return 0;
    return err_set(err, ERR_INVALID,
                   "'%s': the registry sent damaged data (%zu bytes with digest '%s')", d->digest,
                   len, digest);
}

static int pull_get_manifest(struct pull *p, const char *reference, const struct oci_descriptor *d,
                             struct err *err)
{
    _cleanup_free_ char *path = xasprintf("manifests/%s", reference), *text = NULL;
    size_t len;
    int r =
        repository_get(p->repository, path, accept_manifests, IMAGES_BLOB_MAX, &text, &len, err);

    if (r < 0)
        return r;
    if (d) {
        r = pull_check_bytes(d, text, len, err);
        if (r < 0)
            return r;
    }
    free(p->manifest);
    p->manifest = TAKE_PTR(text);
    p->manifest_len = len;
    return 0;
}

static bool pull_is_index(const char *text, size_t len)
{
    _cleanup_json_ json_t *doc = NULL;

    return json_parse("a manifest", text, len, &doc, NULL) >= 0 &&
           json_is_array(json_object_get(doc, "manifests"));
}

static int pull_choose(struct pull *p, struct oci_descriptor *ret, struct err *err)
{
    _cleanup_(oci_index_done) struct oci_index x = {0};
    int r = oci_index_parse_for(p->manifest, p->manifest_len, p->s->platform, &x, err);

    if (r < 0)
        return r;
    if (x.n == 0)
        return p->s->platform
                   ? err_set(err, ERR_NOT_FOUND, "no image for platform %s", p->s->platform)
                   : err_set(err, ERR_NOT_FOUND, "no image for the platform of this machine");
    *ret = x.v[0].d;
    return 0;
}

static int pull_get_first_manifest(struct pull *p, struct err *err)
{
    struct oci_descriptor d = {.size = UINT64_MAX};

    if (!p->s->digest)
        return pull_get_manifest(p, p->name.tag, NULL, err);
    if (!digest_is_valid(p->s->digest))
        return err_set(err, ERR_INVALID, "'%.100s' is not a digest 'sha256:…'", p->s->digest);
    memcpy(d.digest, p->s->digest, DIGEST_MAX);
    return pull_get_manifest(p, d.digest, &d, err);
}

static int pull_find_manifest(struct pull *p, struct err *err)
{
    struct oci_descriptor d = {.size = UINT64_MAX};
    int r = pull_get_first_manifest(p, err);

    if (r < 0)
        return r;
    for (int i = 0; pull_is_index(p->manifest, p->manifest_len); i++) {
        if (i == INDEX_DEPTH_MAX)
            return err_set(err, ERR_LIMIT, "image indexes are nested over %d deep",
                           INDEX_DEPTH_MAX);
        r = pull_choose(p, &d, err);
        if (r < 0)
            return r;
        r = pull_get_manifest(p, d.digest, &d, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int pull_get_config(struct pull *p, const struct oci_manifest *m, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", m->config.digest);
    int r;

    if (m->config.size > IMAGES_CONFIG_MAX)
        return err_set(err, ERR_LIMIT, "the image's configuration is over %d bytes",
                       IMAGES_CONFIG_MAX);
    r = repository_get(p->repository, path, NULL, IMAGES_CONFIG_MAX, &p->config, &p->config_len,
                       err);
    if (r < 0)
        return r;
    return pull_check_bytes(&m->config, p->config, p->config_len, err);
}

/* ---- wanted layers ---- */

static bool pull_is_wanted(const struct pull *p, size_t i, const char *diff_id)
{
    for (size_t j = 0; j < i; j++)
        if (STREQ(p->layers[j].d.digest, p->layers[i].d.digest))
            return false;
    return !strv_contains(p->s->have, diff_id);
}

static int pull_plan_layers(struct pull *p, const struct oci_manifest *m, struct err *err)
{
    _cleanup_json_ json_t *record = NULL;
    const json_t *diff_ids;
    int r = image_config_parse_for(p->config, p->config_len, p->s->platform, &record, err);

    if (r < 0)
        return r;
    diff_ids = json_object_get(record, "layers");
    if (json_array_size(diff_ids) != m->n)
        return err_set(err, ERR_INVALID,
                       "the image's configuration has %zu layers, its manifest %zu",
                       json_array_size(diff_ids), m->n);
    p->layers = xcalloc(m->n + 1, sizeof(*p->layers));
    p->n = m->n;
    for (size_t i = 0; i < m->n; i++) {
        p->layers[i].d = m->layers[i];
        p->layers[i].fd = -1;
        p->layers[i].wanted = pull_is_wanted(p, i, json_string_value(json_array_get(diff_ids, i)));
        if (!p->layers[i].wanted)
            continue;
        if (m->layers[i].size > TOTAL_MAX - p->total)
            return err_set(err, ERR_LIMIT, "the image's layers are over %llu GiB",
                           (unsigned long long)TOTAL_MAX >> 30);
        p->total += m->layers[i].size;
    }
    return 0;
}

static int pull_read_documents(struct pull *p, struct err *err)
{
    _cleanup_(oci_manifest_done) struct oci_manifest m = {0};
    int r;

    r = pull_find_manifest(p, err);
    if (r < 0)
        return r;
    r = oci_manifest_parse(p->manifest, p->manifest_len, &m, err);
    if (r < 0)
        return r;
    r = pull_get_config(p, &m, err);
    if (r < 0)
        return r;
    return pull_plan_layers(p, &m, err);
}

/* ---- registry or mirror ---- */

/* "docker.io=https://mirror" */
static const char *pull_mirror_of(const char *entry, const char *registry)
{
    size_t len = strlen(registry);

    return strncmp(entry, registry, len) == 0 && entry[len] == '=' ? entry + len + 1 : NULL;
}

/* False: the mirror failed. The failure is not reported, because the registry itself is next. */
static bool pull_try_mirror(struct pull *p, const char *mirror)
{
    if (repository_new(p->s, &p->name, mirror, false, &p->repository, NULL) >= 0 &&
        pull_read_documents(p, NULL) >= 0)
        return true;
    repository_free(TAKE_PTR(p->repository));
    free(TAKE_PTR(p->manifest));
    free(TAKE_PTR(p->config));
    free(TAKE_PTR(p->layers));
    p->n = 0;
    p->total = 0;
    return false;
}

static int pull_find_image(struct pull *p, struct err *err)
{
    int r;

    for (char **m = p->s->mirrors; m && *m; m++) {
        const char *mirror = pull_mirror_of(*m, p->name.registry);

        if (mirror && pull_try_mirror(p, mirror))
            return 0;
    }
    r = repository_new(p->s, &p->name, NULL, false, &p->repository, err);
    if (r < 0)
        return r;
    return pull_read_documents(p, err);
}

/* ---- downloads ---- */

static struct pull_layer *pull_next_layer(struct pull *p)
{
    struct pull_layer *l = NULL;

    pthread_mutex_lock(&p->lock);
    while (!l && p->next < p->n && !atomic_load(&p->stop)) {
        l = &p->layers[p->next++];
        if (!l->wanted)
            l = NULL;
    }
    pthread_mutex_unlock(&p->lock);
    return l;
}

static void pull_fail(struct pull *p, struct err *why)
{
    pthread_mutex_lock(&p->lock);
    if (p->err.code == ERR_NONE)
        err_move(&p->err, why);
    atomic_store(&p->stop, true);
    pthread_mutex_unlock(&p->lock);
}

/* A thread: downloads layers until all are done or the pull fails. */
static void *pull_work(void *arg)
{
    struct pull *p = arg;

    for (struct pull_layer *l; (l = pull_next_layer(p));) {
        const struct blob_fetch b = {p->repository, p->fds->folder, &l->d, &l->done, &p->stop};
        _cleanup_err_ struct err why = ERR_INIT;

        if (blob_fetch(&b, &l->fd, &why) < 0)
            pull_fail(p, &why);
    }
    pthread_mutex_lock(&p->lock);
    p->ended++;
    pthread_cond_signal(&p->news);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void pull_report(struct pull *p)
{
    uint64_t bytes = 0;
    size_t wanted = 0, done = 0;

    for (size_t i = 0; i < p->n; i++) {
        uint64_t got = atomic_load(&p->layers[i].done);

        bytes += got;
        wanted += p->layers[i].wanted;
        done += p->layers[i].wanted && got == p->layers[i].d.size;
    }
    if (events_progress(p->fds->events, "download", done, wanted, bytes, p->total) < 0) {
        _cleanup_err_ struct err why = ERR_INIT;

        err_set(&why, ERR_CONFLICT, "the pull was cancelled");
        pull_fail(p, &why);
    }
}

static void pull_wait_for(struct pull *p, size_t threads)
{
    pthread_mutex_lock(&p->lock);
    while (p->ended < threads) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&p->news, &p->lock, &until);
        pthread_mutex_unlock(&p->lock);
        pull_report(p);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

static int pull_download(struct pull *p, struct err *err)
{
    pthread_t threads[AT_ONCE];
    size_t n = 0;

    pull_report(p);
    while (n < AT_ONCE && n < p->n && pthread_create(&threads[n], NULL, pull_work, p) == 0)
        n++;
    if (n == 0 && p->n)
        return err_sys(err, EAGAIN, "start a thread");
    pull_wait_for(p, n);
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    return p->err.code ? err_move(err, &p->err) : 0;
}

/* ---- the archive ---- */

static int pull_put_index(struct pull *p, struct oci_layout *l, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    char digest[DIGEST_MAX];

    digest_of(p->manifest, p->manifest_len, digest);
    doc = json_pack("{s:i, s:[{s:s, s:s, s:I}]}", "schemaVersion", 2, "manifests", "mediaType",
                    "application/vnd.oci.image.manifest.v1+json", "digest", digest, "size",
                    (json_int_t)p->manifest_len);
    text = json_to_text(doc, true);
    return oci_layout_text(l, "index.json", text, strlen(text), err);
}

static int pull_put_all(struct pull *p, struct err *err)
{
    struct oci_layout l;
    int r;

    r = oci_layout_begin(&l, p->fds->archive, err);
    if (r < 0)
        return r;
    r = pull_put_index(p, &l, err);
    if (r < 0)
        return r;
    r = oci_layout_document(&l, p->manifest, p->manifest_len, err);
    if (r < 0)
        return r;
    r = oci_layout_document(&l, p->config, p->config_len, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p->n; i++) {
        const struct pull_layer *layer = &p->layers[i];

        if (!layer->wanted)
            continue;
        r = oci_layout_blob(&l, layer->d.digest, layer->fd, layer->d.size, err);
        if (r < 0)
            return r;
    }
    return oci_layout_finish(&l, err);
}

/* EPIPE is not an error here: ripcord-image has failed and reports why. The downloads then stay for
 * the next pull. */
static int pull_hand_over(struct pull *p, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    (void)events_progress(p->fds->events, "unpack", 0, p->n, 0, 0);
    r = pull_put_all(p, &why);
    if (r < 0)
        return why.errnum == EPIPE ? 0 : err_move(err, &why);
    for (size_t i = 0; i < p->n; i++)
        if (p->layers[i].wanted)
            blob_remove(p->fds->folder, p->layers[i].d.digest);
    return 0;
}

static int pull_all(struct pull *p, struct err *err)
{
    int r;

    r = repository_name_parse(p->s->name, &p->name, err);
    if (r < 0)
        return r;
    r = pull_find_image(p, err);
    if (r < 0)
        return r;
    r = pull_download(p, err);
    if (r < 0)
        return r;
    return pull_hand_over(p, err);
}

int pull_run(const struct settings *s, const struct pull_fds *fds, struct err *err)
{
    struct pull p = {
        .s = s, .fds = fds, .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    int r;

    blob_remove_stale(fds->folder);
    r = pull_all(&p, err);
    for (size_t i = 0; i < p.n; i++)
        fd_close(p.layers[i].fd);
    free(p.layers);
    free(p.manifest);
    free(p.config);
    repository_free(p.repository);
    repository_name_done(&p.name);
    return r < 0 ? err_wrap(err, "pull '%s'", s->name) : 0;
}
