#include <signal.h>
#include <stdlib.h>

#include "daemon/api/call.h"
#include "daemon/api/exec-events.h"
#include "daemon/api/exec-retry.h"
#include "daemon/api/exec-socket.h"
#include "daemon/api/exec-spec.h"
#include "daemon/api/exec-wait.h"
#include "daemon/api/exec-wire.h"
#include "daemon/api/starting.h"
#include "daemon/core/exec/exec-linger.h"
#include "daemon/core/exec/exec.h"
#include "daemon/core/exec/output-stream.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

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
        uint64_t end;
        json_int_t first = (json_int_t)output_stream_first(s, (enum journal_stream)i, &end);

        json_object_set_new(
            o, names[i],
            json_pack("{s:I, s:I, s:I}", "offset", first, "lost", first, "end", (json_int_t)end));
    }
    output_stream_free(s);
    return o;
}

/* [[offset, milliseconds since the epoch], …] */
static int execs_times_of(struct output_stream *s, enum journal_stream which, json_t *doc,
                          const char *name, struct err *err)
{
    _cleanup_free_ struct times_mark *marks = NULL;
    json_t *list = json_array();
    size_t n;
    int r;

    json_object_set_new(doc, name, list);
    r = output_stream_times(s, which, &marks, &n, err);
    for (size_t i = 0; r >= 0 && i < n; i++)
        json_array_append_new(list, json_pack("[I, I]", (json_int_t)marks[i].offset,
                                              (json_int_t)(marks[i].usec / USEC_PER_MSEC)));
    return r;
}

void handle_exec_times(struct api_call *c)
{
    const struct output_stream_config config = {.want = {true, true}};
    _cleanup_json_ json_t *doc = json_object();
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);
    struct output_stream *s = NULL;
    int r;

    if (!sb)
        return;
    r = output_stream_new(c->manager, sb, c->params[1], &config, &s, &err);
    if (r >= 0)
        r = execs_times_of(s, JOURNAL_STDOUT, doc, "stdout", &err);
    if (r >= 0)
        r = execs_times_of(s, JOURNAL_STDERR, doc, "stderr", &err);
    output_stream_free(s);
    if (r < 0)
        call_reply_err(c, &err);
    else
        call_reply(c, 200, TAKE_PTR(doc));
}

static void execs_reply_exec(struct api_call *c, struct sandbox *sb, const char *id,
                             const struct wait_config *config)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *doc = NULL;
    json_t *exec;

    if (exec_get_json(c->manager, sb, id, &exec, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    json_object_set_new(
        exec, "output",
        execs_output_kept(c->manager, sb, json_string_value(json_object_get(exec, "id"))));
    doc = json_pack("{s:o}", "exec", exec);
    if (wait_add_stored(c->manager, sb, doc, config, &err) < 0)
        call_reply_err(c, &err);
    else
        call_reply(c, 200, TAKE_PTR(doc));
}

static int execs_read_wait(struct api_call *c, struct wait_config *ret, struct err *err)
{
    _cleanup_free_ char *output = NULL;
    int r;

    ret->wire = (struct wire_config){.loop = api_settings(c->api)->loop, .manager = c->manager};
    ret->out_max = SPEC_OUTPUT_DEFAULT;
    r = call_query_text(c, "output", &output, err);
    if (r < 0)
        return r;
    if (output && !STREQ(output, "inline"))
        return err_set(err, ERR_INVALID, "query parameter 'output': '%s' must be inline", output);
    ret->output = output != NULL;
    r = call_query_u64(c, "output_max", &ret->out_max, err);
    if (r < 0)
        return r;
    r = parse_check_range("query parameter 'output_max'", ret->out_max, 1, SPEC_OUTPUT_MAX,
                          PARSE_BYTES, err);
    return r < 0 ? r : wait_read_query(c, &ret->wait, err);
}

void handle_exec_get(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct wait_config config = {0};
    struct sandbox *sb = call_sandbox(c);
    struct exec *live;
    int r;

    if (!sb)
        return;
    r = execs_read_wait(c, &config, &err);
    live = exec_find_live(sb, c->params[1]);
    if (r < 0)
        call_reply_err(c, &err);
    else if (r > 0 && live)
        wait_start(c, exec_ref(live), &config);
    else
        execs_reply_exec(c, sb, c->params[1], &config);
}

/* ---- start ---- */

static int execs_read_answer(struct api_call *c, const struct api_exec_spec *spec,
                             struct exec_answer *ret, struct err *err)
{
    int r = wait_read_query(c, &ret->wait.wait, err);

    if (r < 0)
        return r;
    ret->waits = r > 0;
    ret->events = exec_events_wanted(c);
    ret->wait.output = spec->output_inline;
    ret->wait.out_max = spec->output_max;
    if (spec->stats && !ret->waits && !ret->events)
        return err_set(err, ERR_INVALID,
                       "field 'stats': needs the query parameter 'wait' or a "
                       "stream of events");
    if (spec->stats && c->key) /* a request that follows has not seen the beginning */
        return err_set(err, ERR_UNSUPPORTED, "field 'stats': not supported with a key");
    if (ret->events && (ret->waits || spec->output_inline))
        return err_set(err, ERR_INVALID,
                       "a stream of events: 'wait' and 'output' are not allowed with it");
    if (spec->output_inline && !ret->waits)
        return err_set(err, ERR_INVALID, "field 'output': needs the query parameter 'wait'");
    return 0;
}

static void execs_answer(struct api_call *c, struct exec *x, struct exec_answer *how,
                         const struct wire_config *config)
{
    how->wait.wire = *config;
    if (call_wants_upgrade(c))
        wire_start(call_take_request(c), x, config);
    else if (how->events)
        exec_events_start(call_take_request(c), x, how->events, config);
    else
        wait_start(c, x, &how->wait);
}

static struct wire_config execs_wire(struct api_call *c, const struct api_exec_spec *spec)
{
    return (struct wire_config){
        .loop = api_settings(c->api)->loop,
        .manager = c->manager,
        .kill = spec->on_disconnect == DISCONNECT_KILL,
        .stats = spec->stats,
    };
}

static void execs_start_attached(struct api_call *c, struct api_exec_spec *spec,
                                 struct exec_answer *how)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct wire_config config = execs_wire(c, spec);
    struct exec *x;

    spec->req.attach = !how->waits;
    exec_retry_prepare(c, &spec->req);
    if (manager_exec(c->manager, c->params[0], &spec->req, &x, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    exec_retry_made(c, x);
    execs_answer(c, x, how, &config);
}

static void execs_start(struct api_call *c, struct api_exec_spec *spec, struct exec_answer *how)
{
    if (call_wants_upgrade(c) || how->events || how->waits)
        execs_start_attached(c, spec, how);
    else
        starting_begin(c, &spec->req, "exec");
}

void handle_exec_start(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct exec_answer how = {0};
    const struct exec_retry retry = {.how = &how, .member = "exec"};
    struct api_exec_spec spec;
    int r;

    if (exec_spec_read(c->body, NULL, &spec, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    r = call_wants_upgrade(c) ? 0 : execs_read_answer(c, &spec, &how, &err);
    how.wait.wire = execs_wire(c, &spec);
    r = r < 0 ? r : exec_retry(c, &retry, &err);
    if (r < 0)
        call_reply_err(c, &err);
    else if (r == 0)
        execs_start(c, &spec, &how);
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

/* A client with a key may come back, so its command goes on. Without one, nobody could ever fetch
 * the output of its command. */
static bool execs_run_dies_alone(const struct api_call *c, const struct api_exec_spec *spec)
{
    return spec->on_disconnect == DISCONNECT_KILL ||
           (spec->on_disconnect == DISCONNECT_DEFAULT && !c->key);
}

static int execs_run(struct api_call *c, const json_t *spec, struct api_exec_spec *exec,
                     struct exec_answer *how, struct err *err)
{
    const struct exec_retry retry = {.how = how, .run = true, .member = "exec"};
    struct wire_config config = execs_wire(c, exec);
    struct exec *x = NULL;
    int r;

    config.run = true;
    config.kill = execs_run_dies_alone(c, exec);
    how->wait.wire = config;
    r = exec_retry(c, &retry, err);
    if (r != 0)
        return r;
    exec->req.attach = call_wants_upgrade(c) || how->events;
    exec_retry_prepare(c, &exec->req);
    r = manager_run(c->manager, spec, &exec->req, &x, err);
    if (r < 0)
        return r;
    exec_retry_made(c, x);
    if (c->key && how->events) /* a stream has no answer that could be kept */
        exec_linger(x);
    execs_answer(c, x, how, &config);
    return 0;
}

void handle_run(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *empty = json_object();
    const json_t *spec = empty;
    struct api_exec_spec exec = {0};
    struct exec_answer how = {0};
    int r;

    r = execs_read_run(c->body, &spec, &exec, &err);
    if (r >= 0 && !call_wants_upgrade(c))
        r = execs_read_answer(c, &exec, &how, &err);
    r = r < 0 ? r : execs_run(c, spec, &exec, &how, &err);
    if (r < 0)
        call_reply_err(c, &err);
    exec_spec_done(&exec);
}

/* ---- attach and output ---- */

static int execs_read_position(struct api_call *c, struct output_stream_config *ret,
                               struct err *err)
{
    const char *last = c->req ? http_field_get(http_req_head(c->req), "last-event-id") : NULL;
    unsigned long long out, errors;
    int r, end = 0;

    if (last && (sscanf(last, "%19llu.%19llu%n", &out, &errors, &end) != 2 || last[end]))
        return err_set(err, ERR_INVALID, "header 'Last-Event-ID': '%.40s' is not an id of ours",
                       last);
    if (last) {
        ret->offsets[JOURNAL_STDOUT] = out;
        ret->offsets[JOURNAL_STDERR] = errors;
        return 0;
    }
    r = call_query_u64(c, "stdout_offset", &ret->offsets[JOURNAL_STDOUT], err);
    return r < 0 ? r : call_query_u64(c, "stderr_offset", &ret->offsets[JOURNAL_STDERR], err);
}

static int execs_attach_as(struct api_call *c, struct sandbox *sb, const char *socket,
                           struct err *err)
{
    struct wire_config config = {
        .loop = api_settings(c->api)->loop, .manager = c->manager, .socket = socket};
    struct output_stream_config stream;
    int r;

    wire_stream_config(&stream);
    r = execs_read_position(c, &stream, err);
    if (r < 0)
        return r;
    return wire_attach(c, sb, c->params[1], &stream, &config, err);
}

static int execs_attach(struct api_call *c, struct sandbox *sb, struct err *err)
{
    int r = json_read(c->body, NULL, NULL, 0, err);

    return r < 0 ? r : execs_attach_as(c, sb, NULL, err);
}

void handle_exec_attach(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);

    if (sb && execs_attach(c, sb, &err) < 0)
        call_reply_err(c, &err);
}

static int execs_attach_socket(struct api_call *c, struct sandbox *sb, struct err *err)
{
    const char *protocol = exec_socket_protocol(http_req_head(c->req));

    if (protocol)
        return execs_attach_as(c, sb, protocol, err);
    err_set(err, ERR_INVALID, "header 'Sec-WebSocket-Protocol': names no protocol of ours");
    return err_hint(err, "Offer '%s' or '%s'.", EXEC_SOCKET_FRAMES, EXEC_SOCKET_TERMINAL);
}

void handle_exec_socket(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);

    if (sb && execs_attach_socket(c, sb, &err) < 0)
        call_reply_err(c, &err);
}

void handle_exec_stream(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct wire_config config = {.loop = api_settings(c->api)->loop, .manager = c->manager};
    enum exec_events_kind kind = exec_events_wanted(c);
    struct output_stream_config stream = {0};
    struct sandbox *sb = call_sandbox(c);

    if (sb && (execs_read_position(c, &stream, &err) < 0 ||
               exec_events_follow(c, sb, c->params[1], &stream, kind ? kind : EXEC_EVENTS_LINES,
                                  &config, &err) < 0))
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

int call_live_exec(struct api_call *c, struct exec **ret, struct err *err)
{
    struct sandbox *sb = manager_find(c->manager, c->params[0], err);
    _cleanup_json_ json_t *doc = NULL;
    int r;

    if (!sb)
        return -ERR_NOT_FOUND;
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
    struct exec_signalling *s;
    struct exec *x;
    int r;

    if (execs_read_signal(c->body, &sig, &err) < 0 || call_live_exec(c, &x, &err) < 0) {
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

/* ---- terminal ---- */

static int execs_resize(struct api_call *c, struct exec **ret, struct err *err)
{
    uint64_t rows = 0, cols = 0;
    const struct json_field fields[] = {
        {"rows", JSON_FIELD_U64, &rows},
        {"cols", JSON_FIELD_U64, &cols},
    };
    int r;

    r = json_read(c->body, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    r = exec_spec_check_size(rows, cols, err);
    if (r < 0)
        return r;
    r = call_live_exec(c, ret, err);
    if (r < 0)
        return r;
    if (!(*ret)->req.tty)
        return err_set(err, ERR_CONFLICT, "exec '%s' has no terminal", c->params[1]);
    exec_resize(*ret, (uint16_t)rows, (uint16_t)cols);
    return 0;
}

void handle_exec_resize(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct exec *x;

    if (execs_resize(c, &x, &err) < 0)
        call_reply_err(c, &err);
    else
        call_reply(c, 200, json_pack("{s:o}", "exec", exec_to_json(x)));
}
