/*
 * Downloads for a build: base images that are not in the store, as `image pull` does it, and files
 * that ADD names. A thread reads the progress of ripcord-transfer and reports it in the step. When
 * the build is cancelled the thread stops reading, which ends ripcord-transfer.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "daemon/engine/engine-images.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/transfer.h"
#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/image-name.h"
#include "lib/base/xalloc.h"

enum { LINES_MAX = 16 << 10 };

struct transfer_listener {
    const struct native_task *t;
    unsigned step;
    int fd;
};

static void build_transfer_report(const struct transfer_listener *l, const char *line, size_t len)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *p;
    const char *what;

    if (json_parse("progress", line, len, &doc, NULL) < 0)
        return;
    p = json_object_get(doc, "progress");
    what = json_string_value(json_object_get(p, "step"));
    if (what)
        build_step_progress(l->t->b, l->step, what,
                            (uint64_t)json_integer_value(json_object_get(p, "bytes")),
                            (uint64_t)json_integer_value(json_object_get(p, "total")));
}

static void build_transfer_report_lines(const struct transfer_listener *l, struct buf *b)
{
    for (const char *end; (end = memchr(buf_data(b), '\n', b->len));) {
        size_t len = (size_t)(end - buf_data(b));

        build_transfer_report(l, buf_data(b), len);
        buf_consume(b, len + 1);
    }
}

static void *build_transfer_listen_on(void *arg)
{
    struct transfer_listener *l = arg;
    _cleanup_buf_ struct buf b = BUF_INIT(LINES_MAX);
    struct pollfd p[] = {{.fd = l->fd, .events = POLLIN},
                         {.fd = build_stop_fd(l->t->b), .events = POLLIN},
                         {.fd = l->t->cancel_fd, .events = POLLIN}};
    char piece[4096];
    ssize_t n = 1;

    while (n > 0) {
        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno == EINTR)
            continue;
        if (p[1].revents || p[2].revents)
            break;
        n = read(l->fd, piece, sizeof(piece));
        if (n > 0 && buf_append(&b, piece, (size_t)n) < 0)
            break;
        build_transfer_report_lines(l, &b);
    }
    l->fd = fd_close(l->fd);
    return NULL;
}

typedef int (*transfer_fn)(const struct native_task *t, const json_t *ask, int events, char **ret,
                           struct err *err);

/* Adds the login for the registry of this image, and no other. */
static void build_transfer_add_login(const struct build_request *req, const char *name,
                                     json_t *detail)
{
    _cleanup_free_ char *registry = image_name_registry(name);

    for (size_t i = 0; i < req->n_logins; i++)
        if (STREQ(req->logins[i].registry, registry)) {
            json_object_set_new(detail, "username", json_string(req->logins[i].username));
            json_object_set_new(detail, "password", json_string(req->logins[i].password));
        }
}

static int build_transfer_pull(const struct native_task *t, const json_t *ask, int events,
                               char **ret, struct err *err)
{
    const char *name = NULL, *as = NULL;
    const struct json_field fields[] = {{"name", JSON_FIELD_STRING, &name},
                                        {"as", JSON_FIELD_STRING, &as}};
    _cleanup_json_ json_t *detail = NULL;
    _cleanup_free_ char *text = NULL;
    struct image_pull image = {.progress = events};
    int r = json_read(ask, "pull", fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    detail = json_pack("{s:s}", "name", name ? name : "");
    build_transfer_add_login(t->req, name ? name : "", detail);
    text = json_to_text(detail, false);
    image.name = (char *)as;
    image.settings = text;
    r = native_pull(t->n, &image, t->by, ret, err);
    explicit_bzero(text, strlen(text));
    return r;
}

static int build_transfer_fetch(const struct native_task *t, const json_t *ask, int events,
                                char **ret, struct err *err)
{
    const char *to = NULL;
    struct transfer_file f = {.url = "", .to = -1, .events = events};
    const struct json_field fields[] = {{"url", JSON_FIELD_STRING, &f.url},
                                        {"etag", JSON_FIELD_STRING, &f.etag},
                                        {"to", JSON_FIELD_STRING, &to}};
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int file = -1;
    int r = json_read(ask, "fetch", fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    /* ripcord-build made the folder for this file, so the file cannot exist. */
    path = xasprintf("%s/images/store/%s", t->n->state_dir, to ? to : "");
    file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return err_sys(err, errno, "make a file for the download");
    f.to = file;
    return native_fetch(t->n, &f, t->by, ret, err);
}

static int build_transfer_with_listener(const struct native_task *t, unsigned step, transfer_fn fn,
                                        const json_t *ask, char **ret, struct err *err)
{
    struct transfer_listener l = {.t = t, .step = step};
    pthread_t thread;
    int p[2], r;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    l.fd = p[0];
    r = pthread_create(&thread, NULL, build_transfer_listen_on, &l);
    if (r) {
        fd_close(p[0]);
        fd_close(p[1]);
        return err_sys(err, r, "start a thread");
    }
    r = fn(t, ask, p[1], ret, err);
    fd_close(p[1]);
    pthread_join(thread, NULL);
    if (r < 0 && build_stopped(t->b)) {
        if (err)
            err_done(err);
        return err_set(err, ERR_CONFLICT, "the build was cancelled");
    }
    return r;
}

int native_build_pull(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                      struct err *err)
{
    _cleanup_free_ char *done = NULL;

    *ret = json_object();
    return build_transfer_with_listener(t, step, build_transfer_pull, ask, &done, err);
}

int native_build_fetch(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                       struct err *err)
{
    _cleanup_free_ char *text = NULL;
    int r = build_transfer_with_listener(t, step, build_transfer_fetch, ask, &text, err);

    return r < 0 ? r : json_parse("the answer of ripcord-transfer", text, strlen(text), ret, err);
}
