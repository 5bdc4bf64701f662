#include "daemon/api/file-raw.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/file-json.h"
#include "daemon/api/file-talk.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { RAW_OUT_MAX = 256 << 10, RAW_IN_MAX = 256 << 10 };

/* What HEAD and DONE say. */
struct raw_state {
    uint64_t status, first, length, size, modified;
    char etag[FILES_ETAG_MAX + 1];
};

/* One transfer. It ends with the talk, or when the client goes. */
struct file_raw {
    struct api_call *call; /* of a download, until its answer begins */
    struct http_req *req;  /* of an upload, and of a download that has begun */
    struct file_talk *talk;
    struct raw_state state;
    char *path;     /* owned */
    json_t *entry;  /* of an upload; owned */
    bool body_done; /* of an upload: the whole body has arrived */
    bool is_head;
    uint64_t left; /* of a download: bytes that must still come */
};

static void file_raw_free(struct file_raw *f)
{
    json_decref(f->entry);
    free(f->path);
    free(f);
}

/* ---- the request ---- */

static int file_raw_put_condition(const struct api_call *c, const char *name, enum files_tag tag,
                                  struct buf *w, struct err *err)
{
    const char *value = http_field_get(http_req_head(c->req), name);

    if (!value || !*value)
        return 0;
    if (strlen(value) > FILES_ETAG_MAX)
        return err_set(err, ERR_INVALID, "header '%s': too long (at most %d bytes)", name,
                       FILES_ETAG_MAX);
    files_put_str(w, tag, value);
    return 0;
}

/* "bytes=a-b", "bytes=a-" or "bytes=-n". Whatever else it says, the whole file is the answer, as
 * RFC 9110 allows. */
static void file_raw_put_range(const struct api_call *c, struct buf *w)
{
    const char *value = http_field_get(http_req_head(c->req), "range"), *dash;
    _cleanup_free_ char *first = NULL;
    uint64_t from = 0, to = 0;

    if (!value || strncmp(value, "bytes=", 6) != 0 || !(dash = strchr(value + 6, '-')))
        return;
    first = xstrndup(value + 6, (size_t)(dash - value - 6));
    if (dash[1] && parse_u64(dash + 1, 0, INT64_MAX, &to, NULL) < 0)
        return;
    if (!*first) {
        if (dash[1])
            files_put_u64(w, FILES_TAG_SUFFIX, to);
        return;
    }
    if (parse_u64(first, 0, INT64_MAX, &from, NULL) < 0 || (dash[1] && to < from))
        return;
    files_put_u64(w, FILES_TAG_FIRST, from);
    if (dash[1])
        files_put_u64(w, FILES_TAG_LAST, to);
}

static int file_raw_begin(const struct api_call *c, enum files_op op, const struct sup_copy *copy,
                          struct buf *w, struct err *err)
{
    int r;

    files_begin(w, FILES_REQUEST);
    files_put_u64(w, FILES_TAG_OP, op);
    files_put_str(w, FILES_TAG_PATH, copy->path);
    r = file_raw_put_condition(c, "if-match", FILES_TAG_IF_MATCH, w, err);
    if (r < 0)
        return r;
    return file_raw_put_condition(c, "if-none-match", FILES_TAG_IF_NONE_MATCH, w, err);
}

/* ---- the answer of the helper ---- */

static int file_raw_read_state(struct file_raw *f, const struct files_message *m, struct err *err)
{
    struct raw_state *s = &f->state;
    struct files_reader r = files_fields(m);
    struct files_field field;
    int n;

    while ((n = files_next(&r, &field, err)) > 0) {
        if (field.tag == FILES_TAG_STATUS)
            s->status = field.u64;
        else if (field.tag == FILES_TAG_FIRST)
            s->first = field.u64;
        else if (field.tag == FILES_TAG_LENGTH)
            s->length = field.u64;
        else if (field.tag == FILES_TAG_SIZE)
            s->size = field.u64;
        else if (field.tag == FILES_TAG_MODIFIED)
            s->modified = field.u64;
        else if (field.tag == FILES_TAG_ETAG)
            snprintf(s->etag, sizeof(s->etag), "%.*s", (int)field.length, field.data);
    }
    /* It becomes a header line, and the helper may be hostile. */
    for (char *c = s->etag; *c; c++)
        if (*c < 0x21 || *c > 0x7e)
            return err_set(err, ERR_INVALID, "the helper sent an invalid entity tag");
    return n;
}

static char *file_raw_fields(const struct raw_state *s)
{
    char range[96] = "", when[TIME_HTTP_MAX];

    if (s->status == 206)
        snprintf(range, sizeof(range), "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)s->first, (unsigned long long)(s->first + s->length - 1),
                 (unsigned long long)s->size);
    else if (s->status == 416)
        snprintf(range, sizeof(range), "Content-Range: bytes */%llu\r\n",
                 (unsigned long long)s->size);
    return xasprintf("%s%s%sLast-Modified: %s\r\nAccept-Ranges: bytes\r\nVary: Accept\r\n"
                     "X-Content-Type-Options: nosniff\r\n%s",
                     *s->etag ? "ETag: " : "", s->etag, *s->etag ? "\r\n" : "",
                     time_http(s->modified / 1000, when), range);
}

static void file_raw_refuse(struct http_req *req, const struct file_raw *f)
{
    _cleanup_free_ char *extra = file_raw_fields(&f->state), *text = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *doc = NULL;

    if (f->state.status == 416)
        err_set(&err, ERR_INVALID, "header 'Range': '%s' has only %llu bytes", f->path,
                (unsigned long long)f->state.size);
    else
        err_set(&err, ERR_CONFLICT, "'%s': the condition of the request does not hold", f->path);
    doc = json_from_err(&err);
    text = doc ? json_to_text(doc, false) : xstrdup("{}");
    http_reply_with(req,
                    &(struct http_answer){.status = (int)f->state.status,
                                          .content_type = "application/json",
                                          .extra = f->state.status == 416 ? extra : NULL},
                    text, strlen(text));
}

/* ---- out of the sandbox ---- */

static void file_raw_get_gone(struct http_req *req)
{
    struct file_raw *f = http_req_user(req);

    file_talk_drop(f->talk);
    file_raw_free(f);
}

/* Before the answer has begun. */
static void file_raw_get_call_gone(void *arg)
{
    struct file_raw *f = arg;

    call_take_request(f->call);
    file_talk_drop(f->talk);
    file_raw_free(f);
}

static void file_raw_get_drained(struct http_req *req)
{
    struct file_raw *f = http_req_user(req);

    file_talk_read(f->talk, true);
}

static void file_raw_get_stream(struct file_raw *f)
{
    _cleanup_free_ char *extra = file_raw_fields(&f->state);
    const struct http_answer answer = {
        .status = (int)f->state.status, .content_type = "application/octet-stream", .extra = extra};

    f->left = f->state.length;
    http_req_set_user(f->req, f);
    http_req_on_gone(f->req, file_raw_get_gone);
    http_stream_start_length(f->req, &answer, f->is_head ? f->state.size : f->state.length,
                             file_raw_get_drained);
}

static bool file_raw_get_message(void *arg, const struct files_message *m, struct err *err)
{
    struct file_raw *f = arg;
    uint64_t status;

    if (m->type != FILES_HEAD || f->req || !f->call)
        return err_set(err, ERR_INVALID, "the helper sent message 0x%02x out of order", m->type),
               false;
    if (file_raw_read_state(f, m, err) < 0)
        return false;
    status = f->state.status;
    if (status != 200 && status != 206 && status != 304 && status != 412 && status != 416)
        return err_set(err, ERR_INVALID, "the helper sent an invalid status"), false;
    f->call->on_gone = NULL;
    f->req = call_take_request(TAKE_PTR(f->call));
    if (status <= 206) {
        file_raw_get_stream(f);
        return true;
    }
    if (status == 304) {
        _cleanup_free_ char *extra = file_raw_fields(&f->state);

        http_reply_with(TAKE_PTR(f->req), &(struct http_answer){.status = 304, .extra = extra}, "",
                        0);
    } else {
        file_raw_refuse(TAKE_PTR(f->req), f);
    }
    return true;
}

static void file_raw_get_bytes(void *arg, const char *data, size_t len)
{
    struct file_raw *f = arg;

    if (!f->req)
        return;
    len = MIN(len, f->left);
    f->left -= len;
    http_stream_write(f->req, data, len);
    if (http_stream_pending(f->req) >= RAW_OUT_MAX)
        file_talk_read(f->talk, false);
}

static void file_raw_get_ended(void *arg, const struct err *err)
{
    struct file_raw *f = arg;
    _cleanup_err_ struct err none = ERR_INIT;

    if (f->call) {
        f->call->on_gone = NULL;
        if (!err)
            err_set(&none, ERR_ENGINE, "the helper inside the sandbox ended without an answer");
        call_reply_err(f->call, err ? err : &none);
    } else if (f->req && (err || f->left)) {
        log_warn("read of '%s': ended early: %s", f->path, err ? err->msg : "bytes are missing");
        http_stream_abort(f->req);
    } else if (f->req) {
        http_stream_end(f->req);
    }
    file_raw_free(f);
}

void file_raw_get(struct api_call *call, const struct sup_copy *copy)
{
    static const struct file_talk_events events = {
        .message = file_raw_get_message, .bytes = file_raw_get_bytes, .ended = file_raw_get_ended};
    _cleanup_buf_ struct buf w = BUF_INIT(FILES_MESSAGE_MAX);
    _cleanup_err_ struct err err = ERR_INIT;
    struct file_raw *f = xnew0(struct file_raw);
    struct file_talk_config config = {
        .sandbox = call->params[0], .user = copy->user, .request = &w, .events = &events, .arg = f};

    f->path = xstrdup(copy->path);
    f->is_head = STREQ(http_req_head(call->req)->method, "HEAD");
    if (file_raw_begin(call, FILES_READ, copy, &w, &err) >= 0 &&
        file_raw_put_condition(call, "if-range", FILES_TAG_IF_RANGE, &w, &err) >= 0) {
        files_put_flag(&w, FILES_TAG_NO_BODY, f->is_head);
        if (!f->is_head)
            file_raw_put_range(call, &w);
        if (files_finish(&w, &err) >= 0)
            f->talk = file_talk_start(call->api, &config, &err);
    }
    if (!f->talk) {
        call_reply_err(call, &err);
        file_raw_free(f);
        return;
    }
    f->call = call;
    call->on_gone = file_raw_get_call_gone;
    call->gone_arg = f;
}

/* ---- into the sandbox ---- */

static void file_raw_put_gone(struct http_req *req)
{
    struct file_raw *f = http_req_user(req);

    file_talk_drop(f->talk); /* without the end, the file stays as it was, or incomplete */
    file_raw_free(f);
}

static void file_raw_put_data(struct http_req *req, const char *data, size_t len)
{
    struct file_raw *f = http_req_user(req);

    file_talk_send(f->talk, data, len, false);
    if (file_talk_pending(f->talk) >= RAW_IN_MAX)
        http_body_read(req, false);
}

static void file_raw_put_sent(void *arg)
{
    struct file_raw *f = arg;

    if (!f->body_done)
        http_body_read(f->req, true);
}

static void file_raw_put_end(struct http_req *req)
{
    struct file_raw *f = http_req_user(req);

    f->body_done = true;
    file_talk_send(f->talk, NULL, 0, true);
}

static bool file_raw_put_message(void *arg, const struct files_message *m, struct err *err)
{
    struct file_raw *f = arg;
    uint64_t status;

    if (m->type != FILES_DONE || f->entry)
        return err_set(err, ERR_INVALID, "the helper sent message 0x%02x out of order", m->type),
               false;
    f->entry = json_object();
    if (file_raw_read_state(f, m, err) < 0 || file_json_answer(m, f->entry, err) < 0)
        return false;
    status = f->state.status;
    if (status != 200 && status != 201 && status != 412)
        return err_set(err, ERR_INVALID, "the helper sent an invalid status"), false;
    return true;
}

static void file_raw_put_answer(struct file_raw *f)
{
    _cleanup_free_ char *text = json_to_text(f->entry, false);
    _cleanup_free_ char *extra = xasprintf("ETag: %s\r\n", f->state.etag);

    http_reply_with(f->req,
                    &(struct http_answer){.status = (int)f->state.status,
                                          .content_type = "application/json",
                                          .extra = *f->state.etag ? extra : NULL},
                    text, strlen(text));
}

static void file_raw_put_ended(void *arg, const struct err *err)
{
    struct file_raw *f = arg;
    _cleanup_err_ struct err none = ERR_INIT;

    if (!err && !f->entry)
        err_set(&none, ERR_ENGINE, "the helper inside the sandbox ended without an answer");
    if (err || none.code)
        http_reply_err(f->req, NULL, err ? err : &none);
    else if (f->state.status == 412)
        file_raw_refuse(f->req, f);
    else
        file_raw_put_answer(f);
    file_raw_free(f);
}

static int file_raw_put_options(const struct sup_copy *copy, struct buf *w, struct err *err)
{
    files_put_str(w, FILES_TAG_OWNER, copy->owner);
    if (copy->flags & SUP_COPY_MODE)
        files_put_u64(w, FILES_TAG_MODE, copy->mode);
    files_put_flag(w, FILES_TAG_PARENTS, copy->flags & SUP_COPY_PARENTS);
    files_put_flag(w, FILES_TAG_ATOMIC, copy->flags & SUP_COPY_ATOMIC);
    return files_finish(w, err);
}

void file_raw_put(struct api_call *call, const struct sup_copy *copy)
{
    static const struct file_talk_events events = {
        .message = file_raw_put_message, .sent = file_raw_put_sent, .ended = file_raw_put_ended};
    static const struct http_body_events body = {file_raw_put_data, file_raw_put_end};
    _cleanup_buf_ struct buf w = BUF_INIT(FILES_MESSAGE_MAX);
    _cleanup_err_ struct err err = ERR_INIT;
    struct file_raw *f = xnew0(struct file_raw);
    struct file_talk_config config = {.sandbox = call->params[0],
                                      .user = copy->user,
                                      .writes = true,
                                      .request = &w,
                                      .events = &events,
                                      .arg = f};

    f->path = xstrdup(copy->path);
    if (file_raw_begin(call, FILES_WRITE, copy, &w, &err) >= 0 &&
        file_raw_put_options(copy, &w, &err) >= 0)
        f->talk = file_talk_start(call->api, &config, &err);
    if (!f->talk) {
        call_reply_err(call, &err);
        file_raw_free(f);
        return;
    }
    f->req = call_take_request(call);
    http_req_set_user(f->req, f);
    http_req_on_gone(f->req, file_raw_put_gone);
    http_body_start(f->req, &body);
}
