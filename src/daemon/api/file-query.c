#include "daemon/api/file-query.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/base64.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "proto/files.h"

void file_query_done(struct file_query *q)
{
    free(q->path);
    free(q->user);
    free(q->owner);
}

/* A path that is not UTF-8, as base64. */
static int file_query_path_base64(const struct api_call *call, struct file_query *q,
                                  struct err *err)
{
    _cleanup_buf_ struct buf bytes = BUF_INIT(FILES_PATH_MAX + 1);
    _cleanup_free_ char *text = NULL;
    int r = call_query_text(call, "path_base64", &text, err);

    if (r < 0 || !text)
        return r;
    if (q->path)
        return err_set(err, ERR_INVALID,
                       "query parameters 'path' and 'path_base64': give only one");
    r = base64_decode(&bytes, text, strlen(text), err);
    if (r < 0)
        return err_wrap(err, "query parameter 'path_base64'");
    if (memchr(buf_data(&bytes), 0, bytes.len))
        return err_set(err, ERR_INVALID, "query parameter 'path_base64': must not contain a NUL");
    q->path = buf_steal(&bytes);
    return 0;
}

static int file_query_path(const struct api_call *call, struct file_query *q, struct err *err)
{
    int r = call_query_text(call, "path", &q->path, err);

    if (r >= 0)
        r = file_query_path_base64(call, q, err);
    if (r < 0)
        return r;
    if (!q->path)
        return err_set(err, ERR_INVALID, "query parameter 'path' is missing");
    if (q->path[0] != '/')
        return err_set(err, ERR_INVALID, "query parameter 'path': '%.80s' must be absolute",
                       q->path);
    if (strlen(q->path) > FILES_PATH_MAX)
        return err_set(err, ERR_INVALID, "query parameter 'path': too long (at most %d bytes)",
                       FILES_PATH_MAX);
    return 0;
}

static int file_query_user(const struct api_call *call, const char *key, char **ret,
                           struct err *err)
{
    int r = call_query_text(call, key, ret, err);

    if (r < 0 || !*ret)
        return r;
    r = parse_user(*ret, err);
    return r < 0 ? err_wrap(err, "query parameter '%s'", key) : 0;
}

static int file_query_flag(const struct api_call *call, const char *key, uint64_t flag,
                           uint64_t *flags, struct err *err)
{
    bool on = false;
    int r = call_query_bool(call, key, &on, err);

    if (r >= 0 && on)
        *flags |= flag;
    return r;
}

static int file_query_mode(const struct api_call *call, struct sup_copy *copy, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    int r = call_query_text(call, "mode", &text, err);

    if (r < 0 || !text)
        return r;
    r = parse_mode(text, &copy->mode, err);
    if (r < 0)
        return err_wrap(err, "query parameter 'mode'");
    copy->flags |= SUP_COPY_MODE;
    return 0;
}

int file_query_read(const struct api_call *call, bool into, struct file_query *ret, struct err *err)
{
    struct sup_copy *copy = &ret->copy;
    int r;

    if ((r = file_query_path(call, ret, err)) < 0 ||
        (r = file_query_user(call, "user", &ret->user, err)) < 0 ||
        (r = file_query_user(call, "owner", &ret->owner, err)) < 0 ||
        (r = file_query_mode(call, copy, err)) < 0 ||
        (r = file_query_flag(call, "atomic", SUP_COPY_ATOMIC, &copy->flags, err)) < 0 ||
        (r = file_query_flag(call, "parents", SUP_COPY_PARENTS, &copy->flags, err)) < 0)
        return r;
    copy->path = ret->path;
    copy->user = ret->user;
    copy->owner = ret->owner;
    copy->into = into;
    return 0;
}
