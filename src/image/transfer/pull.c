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
    bool wanted; /* neither in the store nor the same as another */
    int fd;      /* once it is here */
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

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t news;
    size_t next, ended;
    struct err err; /* the first failure */
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
                   "'%s' is damaged: the %zu bytes that the registry sent are '%s'", d->digest, len,
                   digest);
}

static int pull_get_manifest(struct pull *p, const char *reference, const struct oci_descriptor *d,
                             struct err *err)
{
    _cleanup_free_ char *path = xasprintf("manifests/%s", reference), *text = NULL;
    size_t len;
    int r =
        repository_get(p->repository, path, accept_manifests, IMAGES_BLOB_MAX, &text, &len, err);

    if (r >= 0 && d)
        r = pull_check_bytes(d, text, len, err);
    if (r < 0)
        return r;
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
    struct oci_index x = {0};
    int r = oci_index_parse_for(p->manifest, p->manifest_len, p->s->platform, &x, err);

    if (r >= 0 && x.n == 0)
        r = err_set(err, ERR_NOT_FOUND, "there is none for platform %s",
                    p->s->platform ? p->s->platform : "of this machine");
    else if (r >= 0)
        *ret = x.v[0].d;
    oci_index_done(&x);
    return r;
}

static int pull_find_manifest(struct pull *p, struct err *err)
{
    struct oci_descriptor d = {.size = UINT64_MAX};
    int r;

    if (p->s->digest) {
        if (!digest_is_valid(p->s->digest))
            return err_set(err, ERR_INVALID, "'%.100s' is not a digest 'sha256:…'", p->s->digest);
        memcpy(d.digest, p->s->digest, DIGEST_MAX);
        r = pull_get_manifest(p, d.digest, &d, err);
    } else {
        r = pull_get_manifest(p, p->name.tag, NULL, err);
    }
    for (int i = 0; r >= 0 && pull_is_index(p->manifest, p->manifest_len); i++) {
        if (i == INDEX_DEPTH_MAX)
            return err_set(err, ERR_LIMIT, "indexes of images are over %d deep", INDEX_DEPTH_MAX);
        r = pull_choose(p, &d, err);
        if (r >= 0)
            r = pull_get_manifest(p, d.digest, &d, err);
    }
    return r;
}

static int pull_get_config(struct pull *p, const struct oci_manifest *m, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", m->config.digest);
    int r;

    if (m->config.size > IMAGES_BLOB_MAX)
        return err_set(err, ERR_LIMIT, "its configuration is over %d bytes", IMAGES_BLOB_MAX);
    r = repository_get(p->repository, path, NULL, IMAGES_BLOB_MAX, &p->config, &p->config_len, err);
    return r < 0 ? r : pull_check_bytes(&m->config, p->config, p->config_len, err);
}

/* ---- what to fetch ---- */

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
        return err_set(err, ERR_INVALID, "its configuration has %zu layers, its manifest %zu",
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
            return err_set(err, ERR_LIMIT, "its layers are over %llu bytes",
                           (unsigned long long)TOTAL_MAX);
        p->total += m->layers[i].size;
    }
    return 0;
}

static int pull_read_documents(struct pull *p, struct err *err)
{
    struct oci_manifest m = {0};
    int r = pull_find_manifest(p, err);

    if (r >= 0)
        r = oci_manifest_parse(p->manifest, p->manifest_len, &m, err);
    if (r >= 0)
        r = pull_get_config(p, &m, err);
    if (r >= 0)
        r = pull_plan_layers(p, &m, err);
    oci_manifest_done(&m);
    return r;
}

/* ---- where from ---- */

/* "docker.io=https://mirror" */
static const char *pull_mirror_of(const char *entry, const char *registry)
{
    size_t len = strlen(registry);

    return strncmp(entry, registry, len) == 0 && entry[len] == '=' ? entry + len + 1 : NULL;
}

/* A mirror that does not have it, or is not there, is no failure. */
static int pull_try_mirror(struct pull *p, const char *mirror)
{
    int r = repository_new(p->s, &p->name, mirror, false, &p->repository, NULL);

    if (r >= 0)
        r = pull_read_documents(p, NULL);
    if (r >= 0)
        return 0;
    repository_free(TAKE_PTR(p->repository));
    free(TAKE_PTR(p->manifest));
    free(TAKE_PTR(p->config));
    free(TAKE_PTR(p->layers));
    p->n = 0;
    p->total = 0;
    return r;
}

static int pull_find_image(struct pull *p, struct err *err)
{
    int r;

    for (char **m = p->s->mirrors; m && *m; m++) {
        const char *mirror = pull_mirror_of(*m, p->name.registry);

        if (mirror && pull_try_mirror(p, mirror) >= 0)
            return 0;
    }
    r = repository_new(p->s, &p->name, NULL, false, &p->repository, err);
    return r < 0 ? r : pull_read_documents(p, err);
}

/* ---- downloads ---- */

static struct pull_layer *pull_take_job(struct pull *p)
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

static void *pull_work(void *arg)
{
    struct pull *p = arg;

    for (struct pull_layer *l; (l = pull_take_job(p));) {
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

static void pull_tell(struct pull *p)
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

        err_set(&why, ERR_CONFLICT, "the pull was given up: nobody waits for it");
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
        pull_tell(p);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

static int pull_download(struct pull *p, struct err *err)
{
    pthread_t threads[AT_ONCE];
    size_t n = 0;

    pull_tell(p);
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
    int r = oci_layout_begin(&l, p->fds->archive, err);

    if (r >= 0)
        r = pull_put_index(p, &l, err);
    if (r >= 0)
        r = oci_layout_document(&l, p->manifest, p->manifest_len, err);
    if (r >= 0)
        r = oci_layout_document(&l, p->config, p->config_len, err);
    for (size_t i = 0; r >= 0 && i < p->n; i++)
        if (p->layers[i].wanted)
            r = oci_layout_blob(&l, p->layers[i].d.digest, p->layers[i].fd, p->layers[i].d.size,
                                err);
    return r < 0 ? r : oci_layout_finish(&l, err);
}

/* A reader that has closed its end says why by itself. */
static int pull_hand_over(struct pull *p, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    (void)events_progress(p->fds->events, "unpack", 0, p->n, 0, 0);
    r = pull_put_all(p, &why);
    if (r < 0 && why.errnum != EPIPE)
        return err_move(err, &why);
    for (size_t i = 0; r >= 0 && i < p->n; i++)
        if (p->layers[i].wanted)
            blob_remove(p->fds->folder, p->layers[i].d.digest);
    return 0;
}

int pull_run(const struct settings *s, const struct pull_fds *fds, struct err *err)
{
    struct pull p = {
        .s = s, .fds = fds, .lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};
    int r = repository_name_parse(s->name, &p.name, err);

    blob_remove_stale(fds->folder);
    if (r >= 0)
        r = pull_find_image(&p, err);
    if (r >= 0)
        r = pull_download(&p, err);
    if (r >= 0)
        r = pull_hand_over(&p, err);
    for (size_t i = 0; i < p.n; i++)
        fd_close(p.layers[i].fd);
    free(p.layers);
    free(p.manifest);
    free(p.config);
    repository_free(p.repository);
    repository_name_done(&p.name);
    return r < 0 ? err_wrap(err, "pull '%s'", s->name) : 0;
}
