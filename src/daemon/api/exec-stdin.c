/*
 * POST …/stdin: bytes for the stdin of a running exec, of any length. While the input is full, the
 * body is not read. A client that lost its connection sends the same bytes again with the same
 * offset: what the exec already has is passed over.
 */
#include <stdlib.h>

#include "daemon/api/call.h"
#include "daemon/core/exec/exec.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

struct exec_stdin {
    struct http_req *req;
    struct exec *exec;
    struct exec_watch watch;
    uint64_t next; /* offset of the next byte of the body; UINT64_MAX: the end of the input */
};

static void exec_stdin_free(struct exec_stdin *s)
{
    exec_watch_remove(s->exec, &s->watch);
    exec_unref(s->exec);
    free(s);
}

static void exec_stdin_on_gone(struct http_req *req)
{
    exec_stdin_free(http_req_user(req));
}

static void exec_stdin_fail(struct exec_stdin *s, const struct err *err)
{
    struct http_req *req = s->req;

    exec_stdin_free(s);
    http_reply_err(req, NULL, err);
}

/* Somebody else may have written to this exec since the last piece. */
static int exec_stdin_check_offset(const struct exec_stdin *s, struct err *err)
{
    uint64_t taken = s->exec->input.taken;

    if (s->next <= taken)
        return 0;
    err_set(err, ERR_CONFLICT, "exec '%s': offset %llu is beyond its input, which has %llu bytes",
            s->exec->id, (unsigned long long)s->next, (unsigned long long)taken);
    return err_hint(err, "Send the bytes from offset %llu on.", (unsigned long long)taken);
}

static int exec_stdin_take(struct exec_stdin *s, const char *data, size_t len, struct err *err)
{
    uint64_t known;
    int r;

    if (s->exec->state == EXEC_ENDED)
        return err_set(err, ERR_CONFLICT, "exec '%s' has ended", s->exec->id);
    if (s->next == UINT64_MAX)
        return exec_input_write(s->exec, data, len, err);
    r = exec_stdin_check_offset(s, err);
    if (r < 0)
        return r;
    known = MIN((uint64_t)len, s->exec->input.taken - s->next);
    s->next += len;
    return known < len ? exec_input_write(s->exec, data + known, len - known, err) : 0;
}

static void exec_stdin_on_data(struct http_req *req, const char *data, size_t len)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct exec_stdin *s = http_req_user(req);

    if (exec_stdin_take(s, data, len, &err) < 0)
        exec_stdin_fail(s, &err);
    else if (exec_input_is_full(s->exec))
        http_body_read(req, false);
}

static void exec_stdin_on_end(struct http_req *req)
{
    struct exec_stdin *s = http_req_user(req);
    _cleanup_json_ json_t *doc = json_pack("{s:I, s:b}", "offset", (json_int_t)s->exec->input.taken,
                                           "closed", s->exec->input.closed);
    _cleanup_free_ char *text = json_to_text(doc, false);

    exec_stdin_free(s);
    http_reply(req, 200, "application/json", text, strlen(text));
}

static void exec_stdin_on_event(void *arg, enum exec_event event)
{
    struct exec_stdin *s = arg;

    if (event == EXEC_EVENT_INPUT || event == EXEC_EVENT_ENDED)
        http_body_read(s->req, true);
}

static const struct http_body_events body_events = {exec_stdin_on_data, exec_stdin_on_end};

void handle_exec_stdin(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t offset = UINT64_MAX;
    struct exec_stdin *s;
    struct http_req *req;
    struct exec *x = NULL;

    if (call_query_u64(c, "offset", &offset, &err) < 0 || call_live_exec(c, &x, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    req = call_take_request(c);
    if (!req)
        return;
    s = xnew0(struct exec_stdin);
    s->req = req;
    s->exec = exec_ref(x);
    s->next = offset;
    s->watch = (struct exec_watch){.fn = exec_stdin_on_event, .arg = s};
    exec_watch_add(x, &s->watch);
    http_req_set_user(req, s);
    http_req_on_gone(req, exec_stdin_on_gone);
    http_body_start(req, &body_events);
}

void handle_exec_stdin_close(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct exec *x;

    if (json_read(c->body, NULL, NULL, 0, &err) < 0 || call_live_exec(c, &x, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    exec_input_end(x);
    call_reply(c, 200, json_pack("{s:o}", "exec", exec_to_json(x)));
}
