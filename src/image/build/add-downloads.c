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

/* What it is called until all of it is here; the hub's writer makes it. */
static const char part[] = "part";

/* ---- what is known of an address ---- */

static void add_downloads_note_key(const char *url, char ret[static DIGEST_MAX])
{
    struct cache_key k;

    cache_key_begin(&k, "fetched");
    cache_key_text(&k, "url", url);
    cache_key_end(&k, ret);
}

/* *ret_etag: new, or NULL for nothing that could be asked about. */
static void add_downloads_recall(const struct add_downloads *f, const char *url,
                                 struct add_download *file, char **ret_etag)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *etag, *digest;
    char key[DIGEST_MAX];

    add_downloads_note_key(url, key);
    if (f->no_cache || step_cache_get_note(f->workspace->store, key, &doc) <= 0)
        return;
    etag = json_string_value(json_object_get(doc, "etag"));
    digest = json_string_value(json_object_get(doc, "digest"));
    if (!etag || !digest || !digest_is_valid(digest))
        return;
    *ret_etag = xstrdup(etag);
    memcpy(file->digest, digest, DIGEST_MAX);
    file->modified = json_integer_value(json_object_get(doc, "modified"));
}

static int add_downloads_remember(const struct add_downloads *f, const char *url,
                                  const struct add_download *file, const json_t *answer,
                                  struct err *err)
{
    const json_t *etag = json_object_get(answer, "etag");
    char key[DIGEST_MAX];

    if (!json_is_string(etag))
        return 0;
    add_downloads_note_key(url, key);
    return step_cache_put_note(f->workspace->store, key,
                               json_pack("{s:O, s:s, s:I}", "etag", etag, "digest", file->digest,
                                         "modified", (json_int_t)file->modified),
                               err);
}

/* ---- the bytes ---- */

static int add_downloads_digest(int fd, char ret[static DIGEST_MAX], struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    struct digest_state *d = digest_begin();
    ssize_t n;

    while ((n = fd_read_full(fd, piece, PIECE)) > 0)
        digest_add(d, piece, (size_t)n);
    digest_end(d, ret);
    return n < 0 ? err_sys(err, (int)-n, "read what was fetched") : 0;
}

/* Under its name, readable for the helper that copies it. */
static int add_downloads_finish(struct add_download *file, int dir, const char *name,
                                struct err *err)
{
    const struct timespec times[2] = {{.tv_sec = file->modified}, {.tv_sec = file->modified}};
    _cleanup_close_ int fd = openat(dir, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? err_sys(err, errno, "open what was fetched") : 0;

    if (r >= 0)
        r = add_downloads_digest(fd, file->digest, err);
    if (r < 0)
        return r;
    if (fchmod(fd, 0644) < 0 || futimens(fd, times) < 0 || renameat(dir, part, dir, name) < 0)
        return err_sys(err, errno, "keep what was fetched");
    return 0;
}

static int add_downloads_check(const struct add_downloads *f, const char *url,
                               const struct add_download *file, struct err *err)
{
    const char *wanted = f->step->checksum;

    if (!wanted || STREQ(wanted, file->digest))
        return 0;
    err_set(err, ERR_INVALID, "the file at '%.300s' has the checksum '%s', not '%s'", url,
            file->digest, wanted);
    return err_hint(err, "It is not what the Dockerfile was written for: look at it before you "
                         "change --checksum.");
}

/* 1: it is here; 0: what `etag` says still holds. */
static int add_downloads_get(struct add_downloads *f, const struct build_url *u, const char *etag,
                             struct add_download *file, struct err *err)
{
    _cleanup_free_ char *folder = NULL, *to = NULL;
    _cleanup_json_ json_t *answer = NULL;
    _cleanup_close_ int dir = -1;
    int r = workspace_folder(f->workspace, 0755, &folder, err);

    if (r >= 0)
        r = dir_open(f->workspace->dir, folder, &dir, err);
    if (r < 0)
        return r;
    to = xasprintf("%s/%s/%s", f->workspace->path, folder, part);
    r = daemon_conn_fetch(f->daemon_conn,
                          json_pack("{s:s, s:s, s:s*}", "url", u->url, "to", to, "etag", etag),
                          &answer, err);
    if (r < 0 || json_is_true(json_object_get(answer, "same")))
        return r;
    file->modified = json_integer_value(json_object_get(answer, "modified"));
    r = add_downloads_finish(file, dir, u->name, err);
    if (r >= 0)
        r = add_downloads_check(f, u->url, file, err);
    if (r >= 0)
        r = add_downloads_remember(f, u->url, file, answer, err);
    if (r < 0)
        return r;
    file->folder = TAKE_PTR(folder);
    return 1;
}

/* ---- the whole ---- */

int add_downloads_identify(struct add_downloads *f, struct err *err)
{
    const struct build_plan_step *s = f->step;
    int r = 0;

    f->files = xcalloc(s->n_urls, sizeof(*f->files));
    for (size_t i = 0; r >= 0 && i < s->n_urls; i++) {
        _cleanup_free_ char *etag = NULL;

        if (s->checksum) {
            memcpy(f->files[i].digest, s->checksum, DIGEST_MAX);
            continue;
        }
        add_downloads_recall(f, s->urls[i].url, &f->files[i], &etag);
        r = add_downloads_get(f, &s->urls[i], etag, &f->files[i], err);
    }
    return MIN(r, 0);
}

void add_downloads_key(const struct add_downloads *f, struct cache_key *k)
{
    for (size_t i = 0; i < f->step->n_urls; i++) {
        _cleanup_free_ char *modified =
            xasprintf("%lld", (long long)(f->step->checksum ? 0 : f->files[i].modified));

        cache_key_text(k, "fetched", f->step->urls[i].name);
        cache_key_text(k, "digest", f->files[i].digest);
        cache_key_text(k, "modified", modified);
    }
}

int add_downloads_fetch(struct add_downloads *f, struct err *err)
{
    bool other = false;
    int r = 0;

    for (size_t i = 0; r >= 0 && i < f->step->n_urls; i++) {
        struct add_download *file = &f->files[i], known = *file;

        if (file->folder)
            continue;
        r = add_downloads_get(f, &f->step->urls[i], NULL, file, err);
        other |= !STREQ(known.digest, file->digest) || known.modified != file->modified;
    }
    return r < 0 ? r : other && !f->step->checksum;
}

void add_downloads_done(struct add_downloads *f)
{
    for (size_t i = 0; f->files && i < f->step->n_urls; i++)
        free(f->files[i].folder);
    free(f->files);
    f->files = NULL;
}
