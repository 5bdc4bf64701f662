#include "cli/execute.h"

#include <poll.h>
#include <unistd.h>

#include "cli/follow.h"
#include "cli/output.h"
#include "cli/spec.h"
#include "cli/term.h"
#include "lib/base/cleanup.h"
#include "proto/spec-limits.h"

/* The terminal in the sandbox has the TERM of ours, unless the user sets another. */
static void execute_add_term(json_t *spec)
{
    const char *term = getenv("TERM");
    json_t *env = json_object_get(spec, "env"), *value;

    if (!env) {
        env = json_object();
        json_object_set_new(spec, "env", env);
    }
    value = json_string(term && *term ? term : "xterm");
    if (value && !json_object_get(env, "TERM"))
        json_object_set(env, "TERM", value);
    json_decref(value);
}

int execute_spec(const struct cli_args *args, char *const *argv, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *spec = NULL;
    unsigned rows, cols;
    int r;

    r = exec_spec_from_args(args, argv, &spec, err);
    if (r < 0)
        return r;
    if (args_has(args, "detach") && (args_has(args, "interactive")))
        return err_set(err, ERR_INVALID, "--detach cannot be combined with --interactive");
    if (args_has(args, "tty")) {
        execute_add_term(spec);
        if (term_size(&rows, &cols)) {
            json_object_set_new(spec, "rows", json_integer(rows));
            json_object_set_new(spec, "cols", json_integer(cols));
        }
    }
    *ret = TAKE_PTR(spec);
    return 0;
}

/* run --detach: waits for the start of the command, then detaches from the stream. */
static int execute_leave(struct cli *cli, struct client_stream *s, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct stream_event ev = {0};
    int r;

    for (;;) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};

        r = stream_next(s, &ev, err);
        if (r < 0)
            return r;
        if (ev.type == STREAM_STARTED)
            break;
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return err_sys(err, errno, "wait for the daemon");
        r = stream_fill(s, err);
        if (r < 0)
            return r;
    }
    r = stream_detach(s, err);
    if (r < 0)
        return r;
    doc = json_pack("{s:s, s:s}", "sandbox", s->sandbox, "exec", s->exec);
    if (cli->json)
        output_json(doc);
    else
        printf("%s %s\n", s->sandbox, s->exec);
    return 0;
}

static int execute_start_detached(struct cli *cli, struct client *c, const char *target,
                                  const json_t *body, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *exec;
    int r = client_call(c, "POST", target, body, &doc, err);

    if (r < 0)
        return r;
    exec = json_object_get(doc, "exec");
    if (cli->json)
        output_json(doc);
    else
        printf("%s\n", json_text_of(exec, "id") ? json_text_of(exec, "id") : "?");
    return 0;
}

int execute(struct cli *cli, const struct cli_args *args, const char *target, const json_t *body,
            enum execute_kind kind, struct err *err)
{
    struct follow_options o = {
        .input = args_has(args, "interactive"),
        .tty = args_has(args, "tty"),
        .stats = args_has(args, "stats"),
        .json = cli->json,
        .mode = cli->json ? RENDER_JSON : RENDER_RAW,
    };
    bool detach = args_has(args, "detach");
    _cleanup_stream_ struct client_stream s = {.fd = -1};
    struct client *c;
    int r;

    if (o.tty && o.input && !isatty(STDIN_FILENO)) {
        err_set(err, ERR_INVALID, "standard input is not a terminal");
        return err_hint(err, "Leave out -t to send input from a file or a pipe.");
    }
    if ((r = args_duration_ms(args, "timeout", SPEC_TIMEOUT_MAX_MS, &o.timeout_ms, err)) < 0 ||
        (r = args_duration_ms(args, "idle-timeout", SPEC_TIMEOUT_MAX_MS, &o.idle_timeout_ms, err)) <
            0 ||
        (r = cli_client(cli, &c, err)) < 0)
        return r;
    if (detach && kind == EXECUTE_EXEC)
        return execute_start_detached(cli, c, target, body, err);
    r = stream_open(&s, c, target, body, err);
    if (r < 0)
        return r;
    return detach ? execute_leave(cli, &s, err) : follow(&s, &o, err);
}
