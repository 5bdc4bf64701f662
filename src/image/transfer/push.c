#include "image/transfer/push.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "image/oci/manifest.h"
#include "image/transfer/events.h"
#include "image/transfer/repository.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/tar.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { ANSWER_MAX = 64 << 10 }; /* of a body that nobody reads */

#define REPORT_EVERY (200 * USEC_PER_MSEC)

static const char manifest_type[] = "application/vnd.oci.image.manifest.v1+json";

struct push {
    int archive, events;
    struct repository_name name;
    struct repository *repository;
    struct tar_reader tar;
    struct tar_entry *e;
    char *manifest; /* owned */
    size_t manifest_len;
    char digest[DIGEST_MAX]; /* of the manifest */
    size_t layers;           /* in the image */
    size_t done, sent;       /* blobs: handled, and of these uploaded */
    uint64_t bytes, total;   /* of blobs: uploaded, and to upload */
    uint64_t reported;       /* time of the last progress event */
};

/* ---- the archive ---- */

/* tar_read_fn */
static ssize_t push_read_archive(void *arg, void *data, size_t len)
{
    const struct push *p = arg;
    ssize_t n;

    do
        n = read(p->archive, data, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* Reads the next file of the archive, which must be the document `path`. */
static int push_read_document(struct push *p, const char *path, char **ret, size_t *ret_len,
                              struct err *err)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    ssize_t n;
    int r = tar_next(&p->tar, p->e, err);

    if (r < 0)
        return r;
    if (r == 0 || !STREQ(p->e->path, path) || p->e->size > IMAGES_CONFIG_MAX)
        return err_set(err, ERR_SYSTEM, "the packed image: '%s' is missing or too large", path);
    text = xmalloc(p->e->size + 1);
    while ((n = tar_read(&p->tar, text + len, p->e->size - len, err)) > 0)
        len += (size_t)n;
    if (n < 0)
        return (int)n;
    text[len] = '\0';
    *ret = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}

/* Finds the digest of the manifest in the index. */
static int push_read_index(struct push *p, struct err *err)
{
    _cleanup_(oci_index_done) struct oci_index x = {0};
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    int r;

    r = push_read_document(p, "index.json", &text, &len, err);
    if (r < 0)
        return r;
    r = oci_index_parse(text, len, &x, err);
    if (r < 0)
        return r;
    if (x.n == 0)
        return err_set(err, ERR_SYSTEM, "the packed image has no manifest");
    memcpy(p->digest, x.v[0].d.digest, DIGEST_MAX);
    return 0;
}

/* The archive begins with the documents, in this order. */
static int push_read_manifest(struct push *p, struct err *err)
{
    _cleanup_(oci_manifest_done) struct oci_manifest m = {0};
    _cleanup_free_ char *layout = NULL, *path = NULL;
    size_t len = 0;
    int r;

    r = push_read_document(p, "oci-layout", &layout, &len, err);
    if (r < 0)
        return r;
    r = push_read_index(p, err);
    if (r < 0)
        return r;
    path = xasprintf("blobs/sha256/%s", digest_hex(p->digest));
    r = push_read_document(p, path, &p->manifest, &p->manifest_len, err);
    if (r < 0)
        return r;
    r = oci_manifest_parse(p->manifest, p->manifest_len, &m, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < m.n; i++)
        p->total += m.layers[i].size;
    p->total += m.config.size;
    p->layers = m.n;
    return 0;
}

/* ---- requests ---- */

static int push_discard(void *arg _unused_, const char *data _unused_, size_t len _unused_,
                        struct err *err _unused_)
{
    return 0;
}

static int push_report(struct push *p, bool now, struct err *err)
{
    if (!now && time_mono() - p->reported < REPORT_EVERY)
        return 0;
    p->reported = time_mono();
    if (events_progress(p->events, "upload", p->done, p->layers, p->bytes, p->total) < 0)
        return err_set(err, ERR_CONFLICT, "the push was cancelled");
    return 0;
}

static ssize_t push_send_blob(void *arg, char *data, size_t len, struct err *err)
{
    struct push *p = arg;
    ssize_t n = tar_read(&p->tar, data, len, err);

    if (n > 0) {
        p->bytes += (uint64_t)n;
        if (push_report(p, false, err) < 0)
            return -1;
    }
    return n;
}

struct push_text {
    const char *at;
    size_t left;
};

static ssize_t push_send_text(void *arg, char *data, size_t len, struct err *err _unused_)
{
    struct push_text *t = arg;
    size_t n = MIN(len, t->left);

    memcpy(data, t->at, n);
    t->at += n;
    t->left -= n;
    return (ssize_t)n;
}

/* 1: the registry has the blob. */
static int push_has_blob(struct push *p, const char *digest, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", digest);
    const struct fetch f = {
        .url = path, .method = "HEAD", .size_max = UINT64_MAX, .on_data = push_discard};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    int r = repository_fetch(p->repository, &f, &head, err);

    if (r < 0)
        return r;
    if (head.status != 200 && head.status != 404)
        return repository_status_error(p->repository, head.status, "a push to this repository",
                                       err);
    return head.status == 200;
}

/* *ret: the URL for the upload of the blob; the caller frees it. */
static int push_begin_upload(struct push *p, const char *digest, char **ret, struct err *err)
{
    const struct fetch f = {
        .url = "blobs/uploads/", .method = "POST", .size_max = ANSWER_MAX, .on_data = push_discard};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    _cleanup_free_ char *where = NULL;
    int r = repository_fetch(p->repository, &f, &head, err);

    if (r < 0)
        return r;
    if (head.status != 202)
        return repository_status_error(p->repository, head.status, "a push to this repository",
                                       err);
    where = repository_location(p->repository, f.url, head.location);
    if (!where)
        return err_set(err, ERR_ENGINE, "the registry did not send a URL for the upload");
    *ret = xasprintf("%s%cdigest=%s", where, strchr(where, '?') ? '&' : '?', digest);
    return 0;
}

static int push_upload(struct push *p, const char *digest, struct err *err)
{
    _cleanup_free_ char *where = NULL;
    struct fetch f = {.method = "PUT",
                      .content_type = "application/octet-stream",
                      .size_max = ANSWER_MAX,
                      .send_size = p->e->size,
                      .on_send = push_send_blob,
                      .on_data = push_discard,
                      .arg = p};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    int r;

    r = push_begin_upload(p, digest, &where, err);
    if (r < 0)
        return r;
    f.url = where;
    r = repository_fetch(p->repository, &f, &head, err);
    if (r < 0)
        return r;
    if (head.status != 201)
        return repository_status_error(p->repository, head.status, "the upload", err);
    p->sent++;
    return 0;
}

static int push_blob(struct push *p, struct err *err)
{
    static const char folder[] = "blobs/sha256/";
    char digest[DIGEST_MAX];
    int r;

    snprintf(digest, sizeof(digest), "sha256:%.64s",
             strncmp(p->e->path, folder, strlen(folder)) == 0 ? p->e->path + strlen(folder) : "");
    if (!digest_is_valid(digest))
        return err_set(err, ERR_SYSTEM, "the packed image: unexpected file '%.100s'", p->e->path);
    r = push_has_blob(p, digest, err);
    if (r == 0)
        r = push_upload(p, digest, err);
    else if (r > 0)
        p->total -= p->e->size;
    p->done++;
    return r < 0 ? err_wrap(err, "'%s'", digest) : push_report(p, true, err);
}

static int push_manifest(struct push *p, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("manifests/%s", p->name.tag);
    struct push_text t = {p->manifest, p->manifest_len};
    const struct fetch f = {.url = path,
                            .method = "PUT",
                            .content_type = manifest_type,
                            .size_max = ANSWER_MAX,
                            .send_size = p->manifest_len,
                            .on_send = push_send_text,
                            .on_data = push_discard,
                            .arg = &t};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    int r = repository_fetch(p->repository, &f, &head, err);

    if (r < 0)
        return r;
    if (head.status != 201 && head.status != 200)
        return repository_status_error(p->repository, head.status, "the manifest", err);
    return 0;
}

static int push_all(struct push *p, struct err *err)
{
    int r;

    r = push_read_manifest(p, err);
    if (r < 0)
        return r;
    r = push_report(p, true, err);
    if (r < 0)
        return r;
    while ((r = tar_next(&p->tar, p->e, err)) > 0) {
        r = push_blob(p, err);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    if (!p->tar.marked)
        return err_set(err, ERR_SYSTEM, "the packed image is incomplete");
    return push_manifest(p, err);
}

static int push_to_repository(struct push *p, const struct settings *s, struct err *err)
{
    int r;

    r = repository_name_parse(s->name, &p->name, err);
    if (r < 0)
        return r;
    r = repository_new(s, &p->name, NULL, true, &p->repository, err);
    if (r < 0)
        return r;
    return push_all(p, err);
}

static void push_done(struct push *p)
{
    repository_free(p->repository);
    repository_name_done(&p->name);
    free(p->manifest);
    free(p->e);
}

int push_run(const struct settings *s, int archive, int events, json_t **ret, struct err *err)
{
    _cleanup_(push_done) struct push p = {
        .archive = archive, .events = events, .e = xnew0(struct tar_entry)};

    tar_reader_init(&p.tar, push_read_archive, &p);
    if (push_to_repository(&p, s, err) < 0)
        return err_wrap(err, "push '%s'", s->name);
    *ret =
        json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", s->name, "digest", p.digest, "layers",
                  (json_int_t)p.layers, "sent", (json_int_t)p.sent, "bytes", (json_int_t)p.bytes);
    return 0;
}
