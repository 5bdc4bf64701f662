#include <signal.h>
#include <stdlib.h>

#include "daemon/api/call.h"
#include "daemon/api/exec-spec.h"
#include "daemon/api/exec-wire.h"
#include "daemon/api/starting.h"
#include "daemon/core/exec/exec.h"
#include "daemon/core/exec/output-stream.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

void handle_exec_list(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *list = NULL, *totals = NULL;
    struct sandbox *sb = call_sandbox(c);

    if (!sb)
        return;
    if (exec_list_json(c->manager, sb, &list, &err) < 0 ||
        exec_totals_of(c->manager, sb, &totals, &err) < 0)
        call_reply_err(c, &err);
    else
        call_reply(c, 200, json_pack("{s:O, s:O}", "execs", list, "totals", totals));
}

void handle_exec_list_all(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *list = NULL, *totals = NULL;
    bool all = false;

    if (call_query_bool(c, "all", &all, &err) < 0 ||
        exec_list_all_json(c->manager, all, &list, &err) < 0 ||
        exec_totals_all(c->manager, &totals, &err) < 0)
        call_reply_err(c, &err);
    else
        call_reply(c, 200, json_pack("{s:O, s:O}", "execs", list, "totals", totals));
}

/* Which bytes of both streams are still stored. */
static json_t *execs_output_kept(struct manager *m, struct sandbox *sb, const char *id)
{
    static const char *const names[JOURNAL_STREAMS] = {"stdout", "stderr"};
    const struct output_stream_config config = {.want = {true, true}};
    struct output_stream *s = NULL;
    json_t *o = json_object();

    if (output_stream_new(m, sb, id, &config, &s, NULL) < 0)
        return o;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        json_int_t first = (json_int_t)output_stream_first(s, (enum journal_stream)i);

        json_object_set_new(o, names[i], json_pack("{s:I, s:I}", "offset", first, "lost", first));
    }
    output_stream_free(s);
    return o;
}

static void execs_reply_exec(struct api_call *c, struct sandbox *sb, const char *id)
{
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *doc;

    if (exec_get_json(c->manager, sb, id, &doc, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    json_object_set_new(
        doc, "output",
        execs_output_kept(c->manager, sb, json_string_value(json_object_get(doc, "id"))));
    call_reply(c, 200, json_pack("{s:o}", "exec", doc));
}

void handle_exec_get(struct api_call *c)
{
    struct sandbox *sb = call_sandbox(c);

    if (sb)
        execs_reply_exec(c, sb, c->params[1]);
}

/* ---- start ---- */

static void execs_start_detached(struct api_call *c, struct api_exec_spec *spec)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (spec->req.want_stdin) {
        err_set(&err, ERR_INVALID, "field 'stdin': needs an upgraded connection");
        call_reply_err(c, &err);
        return;
    }
    starting_begin(c, &spec->req, "exec");
}

static void execs_start_attached(struct api_call *c, struct api_exec_spec *spec)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct wire_config config = {
        .loop = api_settings(c->api)->loop,
        .manager = c->manager,
        .kill = spec->on_disconnect == DISCONNECT_KILL,
        .want_stdin = spec->req.want_stdin,
        .stats = spec->stats,
    };
    struct exec *x;

    spec->req.attach = true;
    if (manager_exec(c->manager, c->params[0], &spec->req, &x, &err) < 0)
        call_reply_err(c, &err);
    else
        wire_start(call_take_request(c), x, &config);
}

void handle_exec_start(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct api_exec_spec spec;

    if (exec_spec_read(c->body, NULL, &spec, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    if (call_wants_upgrade(c))
        execs_start_attached(c, &spec);
    else
        execs_start_detached(c, &spec);
    exec_spec_done(&spec);
}

/* ---- run ---- */

static int execs_read_run(const json_t *body, const json_t **spec, struct api_exec_spec *exec,
                          struct err *err)
{
    const json_t *exec_doc = NULL;
    const struct json_field fields[] = {
        {"spec", JSON_FIELD_OBJECT, spec},
        {"exec", JSON_FIELD_OBJECT, &exec_doc},
    };
    int r;

    r = json_read(body, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    if (!exec_doc)
        return err_set(err, ERR_INVALID, "field 'exec' is missing (the command to run)");
    return exec_spec_read(exec_doc, "exec", exec, err);
}

void handle_run(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *empty = json_object();
    const json_t *spec = empty;
    struct wire_config config = {
        .loop = api_settings(c->api)->loop, .manager = c->manager, .run = true};
    struct api_exec_spec exec = {0};
    struct exec *x = NULL;
    int r;

    r = execs_read_run(c->body, &spec, &exec, &err);
    if (r < 0) {
        call_reply_err(c, &err);
        return;
    }
    exec.req.attach = true;
    config.kill = exec.on_disconnect != DISCONNECT_KEEP;
    config.want_stdin = exec.req.want_stdin;
    config.stats = exec.stats;
    r = manager_run(c->manager, spec, &exec.req, &x, &err);
    exec_spec_done(&exec);
    if (r < 0)
        call_reply_err(c, &err);
    else
        wire_start(call_take_request(c), x, &config);
}

/* ---- attach and output ---- */

static int execs_attach(struct api_call *c, struct sandbox *sb, struct err *err)
{
    struct wire_config config = {.loop = api_settings(c->api)->loop, .manager = c->manager};
    struct output_stream_config stream;
    int r;

    wire_stream_config(&stream);
    r = json_read(c->body, NULL, NULL, 0, err);
    if (r < 0)
        return r;
    r = call_query_u64(c, "stdout_offset", &stream.offsets[JOURNAL_STDOUT], err);
    if (r < 0)
        return r;
    r = call_query_u64(c, "stderr_offset", &stream.offsets[JOURNAL_STDERR], err);
    if (r < 0)
        return r;
    return wire_attach(c, sb, c->params[1], &stream, &config, err);
}

void handle_exec_attach(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);

    if (sb && execs_attach(c, sb, &err) < 0)
        call_reply_err(c, &err);
}

static int execs_download(struct api_call *c, struct sandbox *sb, enum journal_stream which,
                          struct err *err)
{
    struct output_stream_config stream = {0};
    int r;

    stream.want[which] = true;
    r = call_query_u64(c, "offset", &stream.offsets[which], err);
    if (r < 0)
        return r;
    r = call_query_bool(c, "follow", &stream.follow, err);
    if (r < 0)
        return r;
    return download_start(c, sb, c->params[1], &stream, err);
}

static void execs_output(struct api_call *c, enum journal_stream which)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);

    if (sb && execs_download(c, sb, which, &err) < 0)
        call_reply_err(c, &err);
}

void handle_exec_stdout(struct api_call *c)
{
    execs_output(c, JOURNAL_STDOUT);
}

void handle_exec_stderr(struct api_call *c)
{
    execs_output(c, JOURNAL_STDERR);
}

/* ---- signal and kill ---- */

struct exec_signalling {
    struct api_call *call;
    struct exec *exec;
};

static void execs_signalled(void *arg, const struct err *err)
{
    struct exec_signalling *s = arg;

    if (err)
        call_reply_err(s->call, err);
    else
        call_reply(s->call, 200, json_pack("{s:o}", "exec", exec_to_json(s->exec)));
    exec_unref(s->exec);
    free(s);
}

static int execs_read_signal(const json_t *body, int *ret, struct err *err)
{
    const char *name = NULL;
    const struct json_field fields[] = {{"signal", JSON_FIELD_STRING, &name}};
    int r;

    r = json_read(body, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0 || !name)
        return r;
    return parse_signal(name, ret, err) < 0 ? err_wrap(err, "field 'signal'") : 0;
}

static int execs_find_live(struct api_call *c, struct sandbox *sb, struct exec **ret,
                           struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r;

    *ret = exec_find_live(sb, c->params[1]);
    if (*ret)
        return 0;
    r = exec_get_json(c->manager, sb, c->params[1], &doc, err);
    if (r < 0)
        return r;
    return err_set(err, ERR_CONFLICT, "exec '%s' has ended", c->params[1]);
}

static void execs_send_signal(struct api_call *c, int sig, bool whole)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);
    struct exec_signalling *s;
    struct exec *x;
    int r;

    if (!sb)
        return;
    if (execs_read_signal(c->body, &sig, &err) < 0 || execs_find_live(c, sb, &x, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    s = xnew0(struct exec_signalling);
    s->call = c;
    s->exec = exec_ref(x);
    r = whole && sig == SIGKILL ? exec_kill(x, execs_signalled, s, &err)
                                : exec_signal(x, sig, execs_signalled, s, &err);
    if (r < 0) {
        call_reply_err(c, &err);
        exec_unref(x);
        free(s);
    }
}

void handle_exec_signal(struct api_call *c)
{
    execs_send_signal(c, SIGTERM, false);
}

void handle_exec_kill(struct api_call *c)
{
    execs_send_signal(c, SIGKILL, true);
}
