/*
 * Answers requests of the daemon about the store. Workers walk folders and hash files. The table of
 * stored files belongs to the loop, which updates it when the worker is done.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/pool.h"
#include "packages/packages.h"
#include "proto/packages.h"

enum { LIST_MAX = 200000 };

struct admin {
    struct packages *pkgs;
    struct admin_request request;
    char *subject, *path; /* owned */
    json_t *result;       /* owned */
    json_t *list;         /* in result */
    struct digest *bad;   /* owned */
    size_t n_bad;
    uint64_t checked, bytes;
    struct err err;
};

static void admin_free(struct admin *a)
{
    free(a->subject);
    free(a->path);
    free(a->bad);
    json_decref(a->result);
    err_done(&a->err);
    free(a);
}

static json_t *admin_file_json(int fd, const struct digest *d)
{
    char key[DIGEST_KEY_MAX], note[BLOB_NOTE_MAX];
    struct stat st = {0};
    json_t *j = json_object();

    digest_key(d, key);
    blob_note(fd, note);
    fstat(fd, &st);
    json_object_set_new(j, "digest", json_string(key));
    json_object_set_new(j, "size", json_integer(st.st_size));
    json_object_set_new(j, "last_used", json_integer(st.st_mtime));
    json_object_set_new(j, "file", json_string(note));
    if (d->algo == DIGEST_SHA1)
        json_object_set_new(j, "weak", json_true());
    return j;
}

/* -- LIST -- */

static void admin_list_file(void *arg, int fd, const struct digest *d)
{
    struct admin *a = arg;

    if (json_array_size(a->list) < LIST_MAX)
        json_array_append_new(a->list, admin_file_json(fd, d));
}

static void admin_list_pages(struct admin *a, json_t *pages, const char *eco, const char *upstream)
{
    _cleanup_free_ char *path = xasprintf("pages/%s/%s", eco, upstream);
    int fd = openat(a->pkgs->dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)) && json_array_size(pages) < LIST_MAX)
        if (e->d_name[0] != '.' && fstatat(fd, e->d_name, &st, 0) == 0)
            json_array_append_new(pages, json_pack("{s:s, s:s, s:s, s:I, s:I}", "ecosystem", eco,
                                                   "upstream", upstream, "name", e->d_name,
                                                   "fetched", (json_int_t)st.st_mtime, "size",
                                                   (json_int_t)st.st_size));
}

static void admin_work_list(struct admin *a)
{
    const struct packages_config *c = &a->pkgs->config; /* constant after start */
    json_t *pages = json_array();

    a->result = json_object();
    a->list = json_array();
    json_object_set_new(a->result, "files", a->list);
    json_object_set_new(a->result, "pages", pages);
    blobs_walk(a->pkgs->dirfd, admin_list_file, a);
    for (size_t i = 0; i < c->n_upstreams; i++) {
        admin_list_pages(a, pages, ecosystem_name(c->upstreams[i].eco), c->upstreams[i].name);
        if (c->upstreams[i].eco == ECO_NPM)
            admin_list_pages(a, pages, "npm-full", c->upstreams[i].name);
    }
}

/* -- VERIFY -- */

static void admin_verify_file(void *arg, int fd, const struct digest *d)
{
    struct admin *a = arg;
    struct digest is = {0};
    char key[DIGEST_KEY_MAX];
    struct stat st;

    a->checked++;
    if (fstat(fd, &st) == 0)
        a->bytes += (uint64_t)st.st_size;
    if (digest_of_file(fd, d->algo, &is) && digest_equal(&is, d))
        return;
    a->bad = xreallocarray(a->bad, a->n_bad + 1, sizeof(*a->bad));
    a->bad[a->n_bad++] = *d;
    digest_key(d, key);
    json_array_append_new(a->list, json_string(key));
}

static void admin_work_verify(struct admin *a)
{
    a->result = json_object();
    a->list = json_array();
    json_object_set_new(a->result, "bad", a->list);
    blobs_walk(a->pkgs->dirfd, admin_verify_file, a);
    json_object_set_new(a->result, "checked", json_integer((json_int_t)a->checked));
    json_object_set_new(a->result, "bytes", json_integer((json_int_t)a->bytes));
}

/* Removes damaged files; the next request downloads them again. */
static void admin_after_verify(struct admin *a)
{
    for (size_t i = 0; i < a->n_bad; i++) {
        char path[BLOB_PATH_MAX], key[DIGEST_KEY_MAX];

        blob_path(&a->bad[i], path);
        digest_key(&a->bad[i], key);
        unlinkat(a->pkgs->dirfd, path, 0);
        blobs_forget(&a->pkgs->blobs, &a->bad[i]);
        packages_event(a->pkgs, "corrupt", "{s:s}", "digest", key);
    }
}

/* -- SHOW -- */

static bool admin_show_digest(struct admin *a)
{
    const char *colon = strchr(a->subject, ':');
    _cleanup_free_ char *algo = colon ? xstrndup(a->subject, (size_t)(colon - a->subject)) : NULL;
    _cleanup_close_ int fd = -1;
    char path[BLOB_PATH_MAX];
    struct digest d;

    if (!colon || !digest_from_parts(algo, colon + 1, &d))
        return false;
    blob_path(&d, path);
    fd = openat(a->pkgs->dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        err_set(&a->err, ERR_NOT_FOUND, "'%s' is not in the cache", a->subject);
    else
        a->result = admin_file_json(fd, &d);
    return true;
}

/* One line of a page's list of files. */
static void admin_show_line(struct admin *a, char *line)
{
    char *field[8];
    char path[BLOB_PATH_MAX], key[DIGEST_KEY_MAX];
    struct digest d;

    for (int i = 0; i < 8; i++) {
        field[i] = strsep(&line, " ");
        if (!field[i])
            return;
    }
    if (!digest_from_parts(field[2], field[3], &d))
        return;
    blob_path(&d, path);
    digest_key(&d, key);
    json_array_append_new(a->list, json_pack("{s:s, s:s, s:s, s:I, s:b}", "file", field[0],
                                             "version", field[1], "digest", key, "size",
                                             (json_int_t)strtoll(field[4], NULL, 10), "stored",
                                             faccessat(a->pkgs->dirfd, path, F_OK, 0) == 0));
}

static void admin_show_page(struct admin *a)
{
    _cleanup_buf_ struct buf files = BUF_INIT(PAGE_MAX);
    struct page page = {.fd = -1};
    char *save, *line;

    if (!a->path || page_open(a->pkgs->dirfd, a->path, &page) <= 0) {
        err_set(&a->err, ERR_NOT_FOUND, "'%s' is not in the cache", a->subject);
        return;
    }
    a->result = json_pack("{s:s, s:I}", "name", a->subject, "fetched", (json_int_t)page.fetched);
    a->list = json_array();
    json_object_set_new(a->result, "files", a->list);
    if (page_read(&page, PAGE_FILES, &files, &a->err) >= 0 && files.len) {
        save = buf_data(&files);
        while ((line = strsep(&save, "\n")))
            admin_show_line(a, line);
    }
    page_done(&page);
}

/* The path of the stored page for "pypi/name" or "npm/name". NULL: not such a name. */
static char *admin_subject_path(struct packages *pkgs, const char *subject)
{
    const char *name = strchr(subject, '/');
    _cleanup_free_ char *eco_name = name ? xstrndup(subject, (size_t)(name - subject)) : NULL;
    char normal[NAME_MAX_LEN + 1];
    enum ecosystem eco;
    struct upstream *u;
    const char *slash;

    if (!name || ecosystem_parse(eco_name, &eco, NULL) < 0)
        return NULL;
    name++;
    if (eco == ECO_PYPI ? !name_pypi(name, normal) : !name_npm(name))
        return NULL;
    if (eco == ECO_NPM)
        snprintf(normal, sizeof(normal), "%s", name);
    u = config_route(&pkgs->config, eco, normal);
    slash = strchr(normal, '/');
    if (!u)
        return NULL;
    return slash ? xasprintf("pages/%s/%s/%.*s%%2f%s", eco_name, u->name, (int)(slash - normal),
                             normal, slash + 1)
                 : xasprintf("pages/%s/%s/%s", eco_name, u->name, normal);
}

/* -- all of them -- */

static void admin_work(void *arg)
{
    struct admin *a = arg;

    switch (a->request.type) {
    case PACKAGES_LIST:
        admin_work_list(a);
        break;
    case PACKAGES_VERIFY:
        admin_work_verify(a);
        break;
    default:
        if (!admin_show_digest(a))
            admin_show_page(a);
    }
}

static void admin_done(void *arg)
{
    struct admin *a = arg;
    _cleanup_free_ char *text = a->result ? json_to_text(a->result, false) : NULL;

    admin_after_verify(a);
    a->request.fn(a->request.arg, a->request.seq, text, &a->err);
    admin_free(a);
}

static void admin_prune(struct packages *pkgs, const struct admin_request *request)
{
    uint64_t n = 0, bytes = 0, keep = request->has_keep ? request->keep : pkgs->config.budget;
    char text[128];

    blobs_evict(&pkgs->blobs, keep,
                request->age ? (int64_t)(time_wall() - request->age * USEC_PER_SEC) : 0, &n,
                &bytes);
    if (keep == 0)
        page_trim_start(pkgs, 0);
    snprintf(text, sizeof(text), "{\"removed\":%llu,\"bytes\":%llu}", (unsigned long long)n,
             (unsigned long long)bytes);
    request->fn(request->arg, request->seq, text, NULL);
}

void admin_run(struct packages *pkgs, const struct admin_request *request)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct admin *a;

    if (request->type == PACKAGES_PRUNE) {
        admin_prune(pkgs, request);
        return;
    }
    a = xnew0(struct admin);
    a->pkgs = pkgs;
    a->request = *request;
    a->subject = xstrdup(request->subject ? request->subject : "");
    a->path = admin_subject_path(pkgs, a->subject);
    if (pool_submit(pkgs->disk, admin_work, admin_done, a, &err) < 0) {
        request->fn(request->arg, request->seq, NULL, &err);
        admin_free(a);
    }
}

/* -- STATS -- */

static json_t *admin_counters_json(const struct packages_counters *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "requests",
                     (json_int_t)c->requests, "hits", (json_int_t)c->hits, "misses",
                     (json_int_t)c->misses, "stale", (json_int_t)c->stale, "denials",
                     (json_int_t)c->denials, "errors", (json_int_t)c->errors, "mismatches",
                     (json_int_t)c->mismatches, "weak", (json_int_t)c->weak, "bytes_store",
                     (json_int_t)c->bytes_store, "bytes_upstream", (json_int_t)c->bytes_upstream);
}

static json_t *admin_ecosystems_json(const struct packages_counters *c)
{
    json_t *j = json_object();

    for (int i = 0; i < ECO_MAX; i++)
        json_object_set_new(j, ecosystem_name((enum ecosystem)i), admin_counters_json(&c[i]));
    return j;
}

char *admin_stats(struct packages *pkgs)
{
    json_t *clients = json_object(), *upstreams = json_array();
    _cleanup_json_ json_t *j = json_object();

    for (const struct packages_client *b = pkgs->clients; b; b = b->next)
        json_object_set_new(clients, b->id, admin_ecosystems_json(b->counters));
    for (size_t i = 0; i < pkgs->config.n_upstreams; i++) {
        const struct upstream *u = &pkgs->config.upstreams[i];

        json_array_append_new(upstreams,
                              json_pack("{s:s, s:s, s:s, s:b}", "name", u->name, "type",
                                        ecosystem_name(u->eco), "url", u->url, "down", u->down));
    }
    json_object_set_new(j, "ecosystems", admin_ecosystems_json(pkgs->counters));
    json_object_set_new(j, "sandboxes", clients);
    json_object_set_new(j, "upstreams", upstreams);
    json_object_set_new(j, "store",
                        json_pack("{s:I, s:I, s:I, s:I}", "files", (json_int_t)pkgs->blobs.n,
                                  "bytes", (json_int_t)pkgs->blobs.bytes, "budget",
                                  (json_int_t)pkgs->blobs.budget, "evicted",
                                  (json_int_t)pkgs->blobs.evicted));
    return json_to_text(j, false);
}
