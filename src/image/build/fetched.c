#include "image/build/fetched.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/build/cache.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10 };

/* What it is called until all of it is here; the hub's writer makes it. */
static const char part[] = "part";

/* ---- what is known of an address ---- */

static void fetched_note_key(const char *url, char ret[static DIGEST_MAX])
{
    struct build_key k;

    key_begin(&k, "fetched");
    key_text(&k, "url", url);
    key_end(&k, ret);
}

/* *ret_etag: new, or NULL for nothing that could be asked about. */
static void fetched_recall(const struct fetched *f, const char *url, struct fetched_file *file,
                           char **ret_etag)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *etag, *digest;
    char key[DIGEST_MAX];

    fetched_note_key(url, key);
    if (f->no_cache || cache_get_note(f->work->store, key, &doc) <= 0)
        return;
    etag = json_string_value(json_object_get(doc, "etag"));
    digest = json_string_value(json_object_get(doc, "digest"));
    if (!etag || !digest || !digest_is_valid(digest))
        return;
    *ret_etag = xstrdup(etag);
    memcpy(file->digest, digest, DIGEST_MAX);
    file->modified = json_integer_value(json_object_get(doc, "modified"));
}

static int fetched_remember(const struct fetched *f, const char *url,
                            const struct fetched_file *file, const json_t *answer, struct err *err)
{
    const json_t *etag = json_object_get(answer, "etag");
    char key[DIGEST_MAX];

    if (!json_is_string(etag))
        return 0;
    fetched_note_key(url, key);
    return cache_put_note(f->work->store, key,
                          json_pack("{s:O, s:s, s:I}", "etag", etag, "digest", file->digest,
                                    "modified", (json_int_t)file->modified),
                          err);
}

/* ---- the bytes ---- */

static int fetched_count_digest(int fd, char ret[static DIGEST_MAX], struct err *err)
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
static int fetched_settle(struct fetched_file *file, int dir, const char *name, struct err *err)
{
    const struct timespec times[2] = {{.tv_sec = file->modified}, {.tv_sec = file->modified}};
    _cleanup_close_ int fd = openat(dir, part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r = fd < 0 ? err_sys(err, errno, "open what was fetched") : 0;

    if (r >= 0)
        r = fetched_count_digest(fd, file->digest, err);
    if (r < 0)
        return r;
    if (fchmod(fd, 0644) < 0 || futimens(fd, times) < 0 || renameat(dir, part, dir, name) < 0)
        return err_sys(err, errno, "keep what was fetched");
    return 0;
}

static int fetched_check(const struct fetched *f, const char *url, const struct fetched_file *file,
                         struct err *err)
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
static int fetched_get(struct fetched *f, const struct build_url *u, const char *etag,
                       struct fetched_file *file, struct err *err)
{
    _cleanup_free_ char *folder = NULL, *to = NULL;
    _cleanup_json_ json_t *answer = NULL;
    _cleanup_close_ int dir = -1;
    int r = work_folder(f->work, 0755, &folder, err);

    if (r >= 0)
        r = dir_open(f->work->dir, folder, &dir, err);
    if (r < 0)
        return r;
    to = xasprintf("%s/%s/%s", f->work->path, folder, part);
    r = daemon_conn_fetch(f->daemon_conn,
                          json_pack("{s:s, s:s, s:s*}", "url", u->url, "to", to, "etag", etag),
                          &answer, err);
    if (r < 0 || json_is_true(json_object_get(answer, "same")))
        return r;
    file->modified = json_integer_value(json_object_get(answer, "modified"));
    r = fetched_settle(file, dir, u->name, err);
    if (r >= 0)
        r = fetched_check(f, u->url, file, err);
    if (r >= 0)
        r = fetched_remember(f, u->url, file, answer, err);
    if (r < 0)
        return r;
    file->folder = TAKE_PTR(folder);
    return 1;
}

/* ---- the whole ---- */

int fetched_look(struct fetched *f, struct err *err)
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
        fetched_recall(f, s->urls[i].url, &f->files[i], &etag);
        r = fetched_get(f, &s->urls[i], etag, &f->files[i], err);
    }
    return MIN(r, 0);
}

void fetched_key(const struct fetched *f, struct build_key *k)
{
    for (size_t i = 0; i < f->step->n_urls; i++) {
        _cleanup_free_ char *modified =
            xasprintf("%lld", (long long)(f->step->checksum ? 0 : f->files[i].modified));

        key_text(k, "fetched", f->step->urls[i].name);
        key_text(k, "digest", f->files[i].digest);
        key_text(k, "modified", modified);
    }
}

int fetched_bring(struct fetched *f, struct err *err)
{
    bool other = false;
    int r = 0;

    for (size_t i = 0; r >= 0 && i < f->step->n_urls; i++) {
        struct fetched_file *file = &f->files[i], known = *file;

        if (file->folder)
            continue;
        r = fetched_get(f, &f->step->urls[i], NULL, file, err);
        other |= !STREQ(known.digest, file->digest) || known.modified != file->modified;
    }
    return r < 0 ? r : other && !f->step->checksum;
}

void fetched_done(struct fetched *f)
{
    for (size_t i = 0; f->files && i < f->step->n_urls; i++)
        free(f->files[i].folder);
    free(f->files);
    f->files = NULL;
}
