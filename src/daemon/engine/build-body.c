#include "daemon/engine/build-body.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10 };

/* Returns the number of bytes; 0 at the end. A cancelled build is an error, not an end. */
static ssize_t build_body_read_piece(int fd, int stop_fd, void *data, size_t len, struct err *err)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    ssize_t n;

    for (;;) {
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return err_sys(err, errno, "wait for the build context");
        if (p[1].revents)
            return err_set(err, ERR_CONFLICT, "the build was cancelled");
        n = read(fd, data, len);
        if (n >= 0)
            return n;
        if (errno != EINTR && errno != EAGAIN)
            return err_sys(err, errno, "read the build context");
    }
}

/* ---- secrets ---- */

static int build_body_add_secret(struct build_request *req, const char *id, const json_t *value,
                                 struct err *err)
{
    struct build_secret *s;

    if (!*id)
        return err_set(err, ERR_INVALID, "a build secret has an empty name");
    if (!json_is_string(value))
        return err_set(err, ERR_INVALID, "build secret '%s': the value must be a string", id);
    req->secrets = xreallocarray(req->secrets, req->n_secrets + 1, sizeof(*s));
    s = &req->secrets[req->n_secrets++];
    s->id = xstrdup(id);
    s->len = json_string_length(value);
    s->value = xmalloc(s->len + 1);
    memcpy(s->value, json_string_value(value), s->len + 1);
    return 0;
}

static int build_body_parse_secrets(const char *text, size_t len, struct build_request *req,
                                    struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *id;
    json_t *value;
    int r = json_parse("the secrets of a build", text, len, &doc, err);

    if (r < 0)
        return r;
    if (!json_is_object(doc))
        return err_set(err, ERR_INVALID, "the secrets of a build must be a JSON object");
    json_object_foreach (doc, id, value) {
        r = build_body_add_secret(req, id, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- logins ---- */

static int build_body_add_login(struct build_request *req, const char *registry, json_t *doc,
                                struct err *err)
{
    const char *username = NULL, *password = NULL;
    const struct json_field fields[] = {{"username", JSON_FIELD_STRING, &username},
                                        {"password", JSON_FIELD_STRING, &password}};
    int r = json_read(doc, "logins", fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    if (!*registry || !username || !password)
        return err_set(err, ERR_INVALID,
                       "a login of a build needs registry, username and password");
    req->logins = xreallocarray(req->logins, req->n_logins + 1, sizeof(*req->logins));
    req->logins[req->n_logins++] =
        (struct build_login){xstrdup(registry), xstrdup(username), xstrdup(password)};
    return 0;
}

static int build_body_parse_logins(const char *text, size_t len, struct build_request *req,
                                   struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *registry;
    json_t *value;
    int r = json_parse("the logins of a build", text, len, &doc, err);

    if (r < 0)
        return r;
    if (!json_is_object(doc))
        return err_set(err, ERR_INVALID, "the logins of a build must be a JSON object");
    if (json_object_size(doc) > BUILD_LOGINS_MAX)
        return err_set(err, ERR_LIMIT, "a build may have logins for at most %d registries",
                       BUILD_LOGINS_MAX);
    json_object_foreach (doc, registry, value) {
        r = build_body_add_login(req, registry, value, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- secrets and logins ---- */

struct part {
    const char *name;
    size_t max;
    int (*parse)(const char *text, size_t len, struct build_request *req, struct err *err);
};

static int build_body_take_part(const struct part *part, uint64_t size,
                                const struct build_body *body, int stop_fd,
                                struct build_request *req, struct err *err)
{
    _cleanup_wipe_ struct buf text = BUF_INIT(part->max + 1);

    if (!size)
        return 0;
    if (size > part->max)
        return err_set(err, ERR_LIMIT, "the %s of a build are over %zu bytes", part->name,
                       part->max);
    while (text.len < size) {
        size_t want = (size_t)size - text.len;
        char *p = buf_reserve(&text, want);
        ssize_t n = p ? build_body_read_piece(body->fd, stop_fd, p, want, err) : 0;

        if (n < 0)
            return (int)n;
        if (n == 0)
            return err_set(err, ERR_INVALID, "the request body ends inside its %s", part->name);
        buf_commit(&text, (size_t)n);
    }
    return part->parse(buf_data(&text), text.len, req, err);
}

/* ---- the context ---- */

static int build_body_spool(const struct build_body *body, int stop_fd, int file, uint64_t *ret,
                            struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    char max[FORMAT_MAX];
    uint64_t size = 0;
    ssize_t n;

    while ((n = build_body_read_piece(body->fd, stop_fd, piece, PIECE, err)) > 0) {
        int r = fd_write_all(file, piece, (size_t)n);

        if (r < 0)
            return err_sys(err, -r, "keep the build context in '%s'", body->dir);
        size += (uint64_t)n;
        if (size > BUILD_CONTEXT_MAX) {
            err_set(err, ERR_LIMIT, "the build context is over %s",
                    format_size(BUILD_CONTEXT_MAX, max));
            return err_hint(err, "List files that the build does not need in a .dockerignore.");
        }
    }
    *ret = size;
    return (int)n;
}

int build_body_take(const struct build_body *body, int stop_fd, struct build_request *req,
                    struct err *err)
{
    static const struct part secrets = {"secrets", BUILD_SECRETS_MAX, build_body_parse_secrets},
                             logins = {"logins", BUILD_LOGINS_SIZE, build_body_parse_logins};
    _cleanup_close_ int file = -1;
    int r = build_body_take_part(&secrets, body->secrets, body, stop_fd, req, err);

    if (r < 0)
        return r;
    r = build_body_take_part(&logins, body->logins, body, stop_fd, req, err);
    if (r < 0)
        return r;
    file = open(body->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0)
        return err_sys(err, errno, "make a file for the build context in '%s'", body->dir);
    r = build_body_spool(body, stop_fd, file, &req->context_size, err);
    if (r < 0)
        return r;
    if (lseek(file, 0, SEEK_SET) < 0)
        return err_sys(err, errno, "rewind the build context");
    req->context = TAKE_FD(file);
    return 0;
}
