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

enum { SCRAP_MAX = 64 << 10 };

#define TELL_EVERY (200 * USEC_PER_MSEC)

static const char manifest_type[] = "application/vnd.oci.image.manifest.v1+json";

struct push {
    int archive, events;
    struct repository_name name;
    struct repository *repository;
    struct tar_reader tar;
    struct tar_entry *e;
    char *manifest; /* owned */
    size_t manifest_len;
    char digest[DIGEST_MAX]; /* of it */
    size_t layers, done, sent;
    uint64_t bytes, total; /* of blobs: sent, and all */
    uint64_t told;         /* when */
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

/* The next file must be this one: a small document. */
static int push_read_document(struct push *p, const char *path, char **ret, size_t *ret_len,
                              struct err *err)
{
    _cleanup_free_ char *text = NULL;
    size_t len = 0;
    ssize_t n;
    int r = tar_next(&p->tar, p->e, err);

    if (r < 0)
        return r;
    if (r == 0 || !STREQ(p->e->path, path) || p->e->size > IMAGES_BLOB_MAX)
        return err_set(err, ERR_SYSTEM, "the packed image has no '%s' where it belongs", path);
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

/* What describes the image comes first. */
static int push_read_manifest(struct push *p, struct err *err)
{
    _cleanup_free_ char *layout = NULL, *text = NULL, *path = NULL;
    struct oci_index x = {0};
    struct oci_manifest m = {0};
    size_t len = 0;
    int r = push_read_document(p, "oci-layout", &layout, &len, err);

    if (r >= 0)
        r = push_read_document(p, "index.json", &text, &len, err);
    if (r >= 0)
        r = oci_index_parse(text, len, &x, err);
    if (r >= 0 && x.n == 0)
        r = err_set(err, ERR_SYSTEM, "the packed image has no manifest");
    if (r >= 0) {
        memcpy(p->digest, x.v[0].d.digest, DIGEST_MAX);
        path = xasprintf("blobs/sha256/%s", digest_hex(p->digest));
        r = push_read_document(p, path, &p->manifest, &p->manifest_len, err);
    }
    if (r >= 0)
        r = oci_manifest_parse(p->manifest, p->manifest_len, &m, err);
    for (size_t i = 0; r >= 0 && i < m.n; i++)
        p->total += m.layers[i].size;
    p->total += r >= 0 ? m.config.size : 0;
    p->layers = m.n;
    oci_index_done(&x);
    oci_manifest_done(&m);
    return r;
}

/* ---- requests ---- */

static int push_drop(void *arg _unused_, const char *data _unused_, size_t len _unused_,
                     struct err *err _unused_)
{
    return 0;
}

static int push_tell(struct push *p, bool now, struct err *err)
{
    if (!now && time_mono() - p->told < TELL_EVERY)
        return 0;
    p->told = time_mono();
    if (events_progress(p->events, "upload", p->done, p->layers, p->bytes, p->total) < 0)
        return err_set(err, ERR_CONFLICT, "the push was given up: nobody waits for it");
    return 0;
}

static ssize_t push_send_blob(void *arg, char *data, size_t len, struct err *err)
{
    struct push *p = arg;
    ssize_t n = tar_read(&p->tar, data, len, err);

    if (n > 0) {
        p->bytes += (uint64_t)n;
        if (push_tell(p, false, err) < 0)
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

/* 1: it is there. */
static int push_has_blob(struct push *p, const char *digest, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", digest);
    const struct fetch f = {
        .url = path, .method = "HEAD", .size_max = UINT64_MAX, .on_data = push_drop};
    struct fetch_head head = {0};
    int r = repository_fetch(p->repository, &f, &head, err);

    if (r >= 0 && head.status != 200 && head.status != 404)
        r = repository_status_error(p->repository, head.status, "a push to this repository", err);
    else if (r >= 0)
        r = head.status == 200;
    fetch_head_done(&head);
    return r;
}

/* Where the blob may go; new. */
static int push_begin_upload(struct push *p, const char *digest, char **ret, struct err *err)
{
    const struct fetch f = {
        .url = "blobs/uploads/", .method = "POST", .size_max = SCRAP_MAX, .on_data = push_drop};
    _cleanup_free_ char *where = NULL;
    struct fetch_head head = {0};
    int r = repository_fetch(p->repository, &f, &head, err);

    if (r >= 0 && head.status != 202)
        r = repository_status_error(p->repository, head.status, "a push to this repository", err);
    if (r >= 0)
        where = repository_location(p->repository, f.url, head.location);
    if (r >= 0 && !where)
        r = err_set(err, ERR_ENGINE, "the registry does not say where an upload goes");
    if (r >= 0 && where)
        *ret = xasprintf("%s%cdigest=%s", where, strchr(where, '?') ? '&' : '?', digest);
    fetch_head_done(&head);
    return r;
}

static int push_upload(struct push *p, const char *digest, struct err *err)
{
    _cleanup_free_ char *where = NULL;
    struct fetch f = {.method = "PUT",
                      .content_type = "application/octet-stream",
                      .size_max = SCRAP_MAX,
                      .send_size = p->e->size,
                      .on_send = push_send_blob,
                      .on_data = push_drop,
                      .arg = p};
    struct fetch_head head = {0};
    int r = push_begin_upload(p, digest, &where, err);

    if (r < 0)
        return r;
    f.url = where;
    r = repository_fetch(p->repository, &f, &head, err);
    if (r >= 0 && head.status != 201)
        r = repository_status_error(p->repository, head.status, "the upload", err);
    fetch_head_done(&head);
    p->sent += r >= 0;
    return r;
}

static int push_blob(struct push *p, struct err *err)
{
    static const char folder[] = "blobs/sha256/";
    char digest[DIGEST_MAX];
    int r;

    snprintf(digest, sizeof(digest), "sha256:%.64s",
             strncmp(p->e->path, folder, strlen(folder)) == 0 ? p->e->path + strlen(folder) : "");
    if (!digest_is_valid(digest))
        return err_set(err, ERR_SYSTEM, "the packed image holds '%.100s'", p->e->path);
    r = push_has_blob(p, digest, err);
    if (r == 0)
        r = push_upload(p, digest, err);
    else if (r > 0)
        p->total -= p->e->size;
    p->done++;
    return r < 0 ? err_wrap(err, "'%s'", digest) : push_tell(p, true, err);
}

static int push_manifest(struct push *p, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("manifests/%s", p->name.tag);
    struct push_text t = {p->manifest, p->manifest_len};
    const struct fetch f = {.url = path,
                            .method = "PUT",
                            .content_type = manifest_type,
                            .size_max = SCRAP_MAX,
                            .send_size = p->manifest_len,
                            .on_send = push_send_text,
                            .on_data = push_drop,
                            .arg = &t};
    struct fetch_head head = {0};
    int r = repository_fetch(p->repository, &f, &head, err);

    if (r >= 0 && head.status != 201 && head.status != 200)
        r = repository_status_error(p->repository, head.status, "the manifest", err);
    fetch_head_done(&head);
    return r;
}

static int push_all(struct push *p, struct err *err)
{
    int r = push_read_manifest(p, err);

    if (r >= 0)
        r = push_tell(p, true, err);
    while (r >= 0 && (r = tar_next(&p->tar, p->e, err)) > 0)
        r = push_blob(p, err);
    if (r >= 0 && !p->tar.marked)
        r = err_set(err, ERR_SYSTEM, "the packed image has been cut");
    return r < 0 ? r : push_manifest(p, err);
}

int push_run(const struct settings *s, int archive, int events, json_t **ret, struct err *err)
{
    struct push p = {.archive = archive, .events = events, .e = xnew0(struct tar_entry)};
    int r = repository_name_parse(s->name, &p.name, err);

    tar_reader_init(&p.tar, push_read_archive, &p);
    if (r >= 0)
        r = repository_new(s, &p.name, NULL, true, &p.repository, err);
    if (r >= 0)
        r = push_all(&p, err);
    if (r >= 0)
        *ret = json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", s->name, "digest", p.digest, "layers",
                         (json_int_t)p.layers, "sent", (json_int_t)p.sent, "bytes",
                         (json_int_t)p.bytes);
    repository_free(p.repository);
    repository_name_done(&p.name);
    free(p.manifest);
    free(p.e);
    return r < 0 ? err_wrap(err, "push '%s'", s->name) : 0;
}
