/*
 * Agent sessions: a session is a detached exec with a payload on its stdin. session-events.c reads
 * its events.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/api/exec-retry.h"
#include "daemon/api/exec-spec.h"
#include "daemon/api/starting.h"
#include "daemon/core/session/session.h"
#include "lib/base/cleanup.h"
#include "lib/base/jsontext.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum { GRACE_DEFAULT_MS = 5000 };

/* ---- start ---- */

struct session_fields {
    const json_t *payload;
    const char *payload_text;
    bool concurrent;
};

/* Takes the fields of a session out of the body; the rest is an EXECSPEC. */
static int sessions_take_fields(json_t *rest, struct session_fields *x, struct err *err)
{
    static const char *const names[] = {"payload", "payload_text", "concurrent"};
    _cleanup_json_ json_t *mine = json_object();
    const struct json_field fields[] = {
        {"payload", JSON_FIELD_ANY, &x->payload},
        {"payload_text", JSON_FIELD_STRING, &x->payload_text},
        {"concurrent", JSON_FIELD_BOOL, &x->concurrent},
    };
    static const char *const foreign[] = {"stdin", "tty",    "rows",
                                          "cols",  "merged", "on_disconnect"};
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
        if (json_object_get(rest, foreign[i]))
            return err_set(err, ERR_INVALID, "field '%s': not allowed for a session", foreign[i]);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (json_object_get(rest, names[i]))
            json_object_set(mine, names[i], json_object_get(rest, names[i]));
        json_object_del(rest, names[i]);
    }
    r = json_read(mine, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    if (x->payload && x->payload_text)
        return err_set(err, ERR_INVALID, "fields 'payload' and 'payload_text' exclude each other");
    if (x->payload || x->payload_text)
        return 0;
    err_set(err, ERR_INVALID, "field 'payload' is missing");
    return err_hint(err, "Set 'payload' to the JSON value that the agent reads from its stdin.");
}

/* The payload becomes one line, without the line breaks of the text. */
static int sessions_read_payload(const struct session_fields *x, struct exec_request *req,
                                 struct err *err)
{
    _cleanup_free_ char *text =
        x->payload ? json_to_text(x->payload, false) : xstrdup(x->payload_text);
    size_t len = strlen(text);
    int r = x->payload ? 0 : json_text_compact(text, &len, err);

    if (r < 0) {
        explicit_bzero(text, strlen(text));
        return err_wrap(err, "field 'payload_text'");
    }
    req->input = xmalloc(len + 1);
    memcpy(req->input, text, len);
    req->input[len] = '\n';
    req->input_len = len + 1;
    explicit_bzero(text, strlen(text));
    return 0;
}

static int sessions_read_session(const json_t *body, struct api_exec_spec *spec, struct err *err)
{
    _cleanup_json_ json_t *rest = json_copy((json_t *)body);
    struct session_fields x = {0};
    int r;

    r = sessions_take_fields(rest, &x, err);
    if (r < 0)
        return r;
    r = exec_spec_read(rest, NULL, spec, err);
    if (r >= 0 && (spec->req.input || spec->output_inline))
        r = err_set(err, ERR_INVALID, "fields 'input' and 'output': a session has its own");
    if (r < 0)
        return r;
    spec->req.session = true;
    spec->req.concurrent = x.concurrent;
    r = sessions_read_payload(&x, &spec->req, err);
    if (r < 0)
        exec_spec_done(spec);
    return r;
}

void handle_session_start(struct api_call *c)
{
    static const struct exec_answer detached;
    static const struct exec_retry retry = {.how = &detached, .member = "session"};
    _cleanup_err_ struct err err = ERR_INIT;
    struct api_exec_spec spec;
    int r;

    if (sessions_read_session(c->body, &spec, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    r = exec_retry(c, &retry, &err);
    if (r < 0)
        call_reply_err(c, &err);
    else if (r == 0)
        starting_begin(c, &spec.req, "session");
    exec_spec_done(&spec);
}

/* ---- show ---- */

void handle_session_get(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);
    json_t *doc;

    if (!sb)
        return;
    if (session_get_json(c->manager, sb, c->params[1], &doc, &err) < 0)
        call_reply_err(c, &err);
    else
        call_reply(c, 200, json_pack("{s:o}", "session", doc));
}

/* ---- cancel ---- */

struct session_cancelling {
    struct api_call *call;
    struct exec *exec;
};

static void sessions_cancelled(void *arg, const struct err *err)
{
    struct session_cancelling *x = arg;

    if (err)
        call_reply_err(x->call, err);
    else
        call_reply(x->call, 200, json_pack("{s:o}", "session", exec_to_json(x->exec)));
    exec_unref(x->exec);
    free(x);
}

static int sessions_read_grace(const json_t *body, uint64_t *ret, struct err *err)
{
    uint64_t ms = GRACE_DEFAULT_MS;
    const struct json_field fields[] = {{"grace_ms", JSON_FIELD_U64, &ms}};
    int r = json_read(body, NULL, fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    r = parse_check_range("field 'grace_ms'", ms, 0, SPEC_CANCEL_GRACE_MAX_MS, PARSE_MSEC, err);
    if (r < 0)
        return r;
    *ret = ms * USEC_PER_MSEC;
    return 0;
}

static int sessions_find_live(struct api_call *c, struct sandbox *sb, struct exec **ret,
                              struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = session_get_json(c->manager, sb, c->params[1], &doc, err);

    if (r < 0)
        return r;
    *ret = exec_find_live(sb, json_string_value(json_object_get(doc, "id")));
    if (*ret)
        return 0;
    return err_set(err, ERR_CONFLICT, "session '%s' has ended", c->params[1]);
}

void handle_session_cancel(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);
    struct session_cancelling *x;
    struct exec *exec = NULL;
    uint64_t grace = 0;

    if (!sb)
        return;
    if (sessions_read_grace(c->body, &grace, &err) < 0 ||
        sessions_find_live(c, sb, &exec, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    x = xnew0(struct session_cancelling);
    x->call = c;
    x->exec = exec_ref(exec);
    if (session_cancel(exec, grace, sessions_cancelled, x, &err) < 0) {
        call_reply_err(c, &err);
        exec_unref(exec);
        free(x);
    }
}
