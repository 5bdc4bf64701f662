#include "image/build/add-downloads.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/build/step-cache.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10 };

/* The file's name until it is complete. ripcord-transfer writes it. */
static const char part[] = "part";

/* ---- notes about URLs ---- */

static void add_downloads_note_key(const char *url, char ret[static DIGEST_MAX])
{
    struct cache_key k;

    cache_key_begin(&k, "fetched");
    cache_key_text(&k, "url", url);
    cache_key_end(&k, ret);
}

/* *ret_etag: the caller frees it. It stays unchanged if nothing is known about the URL. */
static void add_downloads_recall(const struct add_downloads *d, const char *url,
                                 struct add_download *file, char **ret_etag)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *etag, *digest;
    char key[DIGEST_MAX];

    add_downloads_note_key(url, key);
    if (d->no_cache || step_cache_get_note(d->workspace->store, key, &doc) <= 0)
        return;
    etag = json_string_value(json_object_get(doc, "etag"));
    digest = json_string_value(json_object_get(doc, "digest"));
    if (!etag || !digest || !digest_is_valid(digest))
        return;
    *ret_etag = xstrdup(etag);
    memcpy(file->digest, digest, DIGEST_MAX);
    file->modified = json_integer_value(json_object_get(doc, "modified"));
}

static int add_downloads_remember(const struct add_downloads *d, const char *url,
                                  const struct add_download *file, const json_t *answer,
                                  struct err *err)
{
    const json_t *etag = json_object_get(answer, "etag");
    char key[DIGEST_MAX];

    if (!json_is_string(etag))
        return 0;
    add_downloads_note_key(url, key);
    return step_cache_put_note(d->workspace->store, key,
                               json_pack("{s:O, s:s, s:I}", "etag", etag, "digest", file->digest,
                                         "modified", (json_int_t)file->modified),
                               err);
}

/* ---- downloads ---- */

static int add_downloads_digest(int fd, char ret[static DIGEST_MAX], struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    struct digest_state *state = digest_begin();
    ssize_t n;

    while ((n = fd_read_full(fd, piece, PIECE)) > 0)
        digest_add(state, piece, (size_t)n);
    digest_end(state, ret);
    return n < 0 ? err_sys(err, (int)-n, "read the download") : 0;
}

/* Gives the file its name, and lets the child that copies it read it. */
static int add_downloads_finish(struct add_download *file, int dir, const char *name,
                                struct err *err)
{
    const struct timespec times[2] = {{.tv_sec = file->modified}, {.tv_sec = file->modified}};
    _cleanup_close_ int fd = openat(dir, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (fd < 0)
        return err_sys(err, errno, "open the download");
    r = add_downloads_digest(fd, file->digest, err);
    if (r < 0)
        return r;
    if (fchmod(fd, 0644) < 0 || futimens(fd, times) < 0 || renameat(dir, part, dir, name) < 0)
        return err_sys(err, errno, "save the download");
    return 0;
}

static int add_downloads_check(const struct add_downloads *d, const char *url,
                               const struct add_download *file, struct err *err)
{
    const char *wanted = d->step->checksum;

    if (!wanted || STREQ(wanted, file->digest))
        return 0;
    err_set(err, ERR_INVALID, "'%.300s': checksum is '%s', expected '%s'", url, file->digest,
            wanted);
    return err_hint(err, "The file has changed since --checksum was written: inspect the file "
                         "before you change --checksum.");
}

/* 1: downloaded; 0: the file still has this ETag. */
static int add_downloads_get(struct add_downloads *d, const struct build_url *u, const char *etag,
                             struct add_download *file, struct err *err)
{
    _cleanup_free_ char *folder = NULL, *to = NULL;
    _cleanup_json_ json_t *answer = NULL;
    _cleanup_close_ int dir = -1;
    int r;

    r = workspace_folder(d->workspace, 0755, &folder, err);
    if (r < 0)
        return r;
    r = dir_open(d->workspace->dir, folder, &dir, err);
    if (r < 0)
        return r;
    to = xasprintf("%s/%s/%s", d->workspace->path, folder, part);
    r = daemon_conn_fetch(d->daemon_conn,
                          json_pack("{s:s, s:s, s:s*}", "url", u->url, "to", to, "etag", etag),
                          &answer, err);
    if (r < 0)
        return r;
    if (json_is_true(json_object_get(answer, "same")))
        return 0;
    file->modified = json_integer_value(json_object_get(answer, "modified"));
    r = add_downloads_finish(file, dir, u->name, err);
    if (r < 0)
        return r;
    r = add_downloads_check(d, u->url, file, err);
    if (r < 0)
        return r;
    r = add_downloads_remember(d, u->url, file, answer, err);
    if (r < 0)
        return r;
    file->folder = TAKE_PTR(folder);
    return 1;
}

/* ---- all files of a step ---- */

int add_downloads_identify(struct add_downloads *d, struct err *err)
{
    const struct build_plan_step *s = d->step;
    int r;

    d->files = xcalloc(s->n_urls, sizeof(*d->files));
    for (size_t i = 0; i < s->n_urls; i++) {
        _cleanup_free_ char *etag = NULL;

        if (s->checksum) {
            memcpy(d->files[i].digest, s->checksum, DIGEST_MAX);
            continue;
        }
        add_downloads_recall(d, s->urls[i].url, &d->files[i], &etag);
        r = add_downloads_get(d, &s->urls[i], etag, &d->files[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

void add_downloads_key(const struct add_downloads *d, struct cache_key *k)
{
    for (size_t i = 0; i < d->step->n_urls; i++) {
        _cleanup_free_ char *modified =
            xasprintf("%lld", (long long)(d->step->checksum ? 0 : d->files[i].modified));

        cache_key_text(k, "fetched", d->step->urls[i].name);
        cache_key_text(k, "digest", d->files[i].digest);
        cache_key_text(k, "modified", modified);
    }
}

int add_downloads_fetch(struct add_downloads *d, struct err *err)
{
    bool changed = false;
    int r;

    for (size_t i = 0; i < d->step->n_urls; i++) {
        struct add_download *file = &d->files[i], known = *file;

        if (file->folder)
            continue;
        r = add_downloads_get(d, &d->step->urls[i], NULL, file, err);
        if (r < 0)
            return r;
        changed |= !STREQ(known.digest, file->digest) || known.modified != file->modified;
    }
    return changed && !d->step->checksum;
}

void add_downloads_done(struct add_downloads *d)
{
    for (size_t i = 0; d->files && i < d->step->n_urls; i++)
        free(d->files[i].folder);
    free(d->files);
    d->files = NULL;
}
