/*
 * ripcord image build: checks the Dockerfile here, so that errors are reported with line and column
 * before anything is sent. Then it sends the context to the daemon, whose events come back as
 * lines. The end of this program ends the build, because the daemon notices the closed connection.
 *
 * A repeated build needs only the digests of the context. So the first round sends a digest-only
 * context (proto/digest-context.h), and the next rounds add the files that the builder asks for. If
 * that does not suffice, or the engine does not support it, the whole context is sent. Events of a
 * digest-only round are held back until it succeeds or runs a step, so that each step is shown
 * once.
 */
#include <string.h>
#include <unistd.h>

#include "cli/agents.h"
#include "cli/build-context.h"
#include "cli/build-view.h"
#include "cli/docker-auth.h"
#include "cli/image.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/secrets.h"
#include "cli/sender.h"
#include "image/lint/lint.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/digest-context.h"

#define TICK (100 * USEC_PER_MSEC)
enum { EVENT_MAX = 256 << 10, TARGET_MAX_BYTES = 14 << 10, DIGEST_ONLY_ROUNDS = 3 };

struct image_build {
    struct cli *cli;
    const struct cli_args *args;
    struct build_context *context;
    struct build_view *view; /* NULL with --json */
    bool live;
    char *secrets;    /* owned: secrets as JSON, or NULL */
    char *logins;     /* owned: registry credentials as JSON, or NULL */
    char **agents;    /* owned: ssh agents as "ID=/PATH" */
    struct buf lines; /* received bytes that are not parsed yet */
    bool accepted;    /* the daemon has begun to build: a failure from here on is final */
    json_t *end;      /* the end event, or NULL */

    /* For a digest-only context: */
    bool digest_only;
    json_t *need; /* digits of the files to send, as keys */
    bool again;   /* the builder needs files: another round follows */
    bool all;     /* the builder needs all files */
    bool holding;
    char **held; /* owned: events that are held back */
};

static void image_build_wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

static void image_build_done(struct image_build *ib)
{
    build_context_free(ib->context);
    build_view_free(ib->view);
    image_build_wipe(ib->secrets);
    image_build_wipe(ib->logins);
    strv_free(ib->agents);
    buf_done(&ib->lines);
    json_decref(ib->end);
    json_decref(ib->need);
    strv_free(ib->held);
}
#define _cleanup_build_ __attribute__((cleanup(image_build_done)))

/* ---- the Dockerfile ---- */

static int image_build_check_stage(const struct dockerfile *df, const char *target, struct err *err)
{
    const char *names[DOCKERFILE_STAGES_MAX], *near;
    size_t n = 0;

    if (!target || dockerfile_find_stage(df, target, df->n_stages) >= 0)
        return 0;
    for (size_t i = 0; i < df->n_stages; i++)
        if (df->stages[i].name)
            names[n++] = df->stages[i].name;
    near = strv_nearest(target, names, n);
    err_set(err, ERR_INVALID, "the Dockerfile has no stage '%s'", target);
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

/* Shows warnings and errors of the linter. Findings of level info are left to `image lint`. */
static int image_build_lint(struct image_build *ib, const char *text, size_t len, struct err *err)
{
    struct lint_context context = {.has_ignore_file = build_context_has_ignore(ib->context)};
    const char *label = build_context_label(ib->context);
    struct lint_report report = {0};
    bool bad;

    lint_check(text, len, &context, &report);
    bad = lint_worst(&report) >= LINT_WARNING;
    for (size_t i = 0; i < report.n; i++)
        if (report.findings[i].rule->severity >= LINT_WARNING)
            image_lint_show(ib->cli, label, text, &report.findings[i]);
    lint_report_done(&report);
    if (!bad || !args_has(ib->args, "strict"))
        return 0;
    err_set(err, ERR_INVALID, "'%s': the linter has warnings", label);
    return err_hint(err, "Run 'ripcord image lint' for details, or build without --strict.");
}

static int image_build_check_dockerfile(struct image_build *ib, struct err *err)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    size_t len;
    const char *text = build_context_text(ib->context, &len);
    int r = dockerfile_parse(text, len, &df, NULL, err);

    if (r < 0)
        return err_wrap(err, "%s", build_context_label(ib->context));
    r = image_build_check_stage(df, args_get(ib->args, "target"), err);
    return r < 0 ? r : image_build_lint(ib, text, len, err);
}

/* ---- the request ---- */

static int image_build_add_query(struct buf *b, const char *key, const char *value)
{
    _cleanup_free_ char *escaped = client_escape(value);

    return buf_appendf(b, "%c%s=%s", strchr(buf_data(b), '?') ? '&' : '?', key, escaped);
}

/* NAME alone takes the value from the environment, and is skipped when it is not set there. */
static int image_build_add_arg(struct buf *b, const char *arg)
{
    const char *value = strchr(arg, '=') ? NULL : getenv(arg);
    _cleanup_free_ char *both = value ? xasprintf("%s=%s", arg, value) : NULL;

    if (!both && !strchr(arg, '='))
        return 0;
    return image_build_add_query(b, "arg", both ? both : arg);
}

static int image_build_add_options(const struct image_build *ib, struct buf *b)
{
    static const char *const texts[] = {"target", "platform", "network", "engine"};
    const char *v;

    if (image_build_add_query(b, "dockerfile", build_context_dockerfile(ib->context)) < 0)
        return -ERR_LIMIT;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if ((v = args_get(ib->args, texts[i])) && image_build_add_query(b, texts[i], v) < 0)
            return -ERR_LIMIT;
    for (size_t i = 0; (v = args_next(ib->args, "tag", &i));)
        if (image_build_add_query(b, "tag", v) < 0)
            return -ERR_LIMIT;
    for (size_t i = 0; (v = args_next(ib->args, "build-arg", &i));)
        if (image_build_add_arg(b, v) < 0)
            return -ERR_LIMIT;
    if (args_has(ib->args, "no-cache") && image_build_add_query(b, "no_cache", "1") < 0)
        return -ERR_LIMIT;
    if (args_has(ib->args, "pull") && image_build_add_query(b, "pull", "1") < 0)
        return -ERR_LIMIT;
    for (char **a = ib->agents; a && *a; a++)
        if (image_build_add_query(b, "ssh", *a) < 0)
            return -ERR_LIMIT;
    return 0;
}

static size_t image_build_length(const char *text)
{
    return text ? strlen(text) : 0;
}

static int image_build_add_size(struct buf *b, const char *key, const char *text)
{
    char size[32];

    snprintf(size, sizeof(size), "%zu", image_build_length(text));
    return text ? image_build_add_query(b, key, size) : 0;
}

static int image_build_make_target(const struct image_build *ib, char **ret, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(TARGET_MAX_BYTES);

    if (buf_append_str(&b, "/v1/images/build") < 0 || image_build_add_options(ib, &b) < 0 ||
        image_build_add_size(&b, "secrets", ib->secrets) < 0 ||
        image_build_add_size(&b, "logins", ib->logins) < 0)
        return err_set(err, ERR_LIMIT,
                       "the names and arguments of the build are longer than %d bytes",
                       TARGET_MAX_BYTES);
    *ret = buf_steal(&b);
    return 0;
}

static int image_build_read_secrets(struct image_build *ib, struct err *err)
{
    _cleanup_json_ json_t *doc = json_object();
    int r = secrets_from_args(ib->args, doc, err);

    if (r < 0)
        return r;
    if (json_object_get(doc, "secrets"))
        ib->secrets = json_to_text(json_object_get(doc, "secrets"), false);
    return 0;
}

/* The Dockerfile and the build arguments name the images that the build needs. Most builds need no
 * credentials, so an unreadable credentials file is only a warning. */
static void image_build_read_logins(struct image_build *ib, const struct client *c)
{
    _cleanup_err_ struct err why = ERR_INIT;
    const char *v, *engine = args_get(ib->args, "engine");
    _cleanup_strv_ char **texts = NULL;
    _cleanup_json_ json_t *doc = NULL;
    size_t len;

    if (engine && !STREQ(engine, "native"))
        return;
    strv_add(&texts, build_context_text(ib->context, &len));
    for (size_t i = 0; (v = args_next(ib->args, "build-arg", &i));) {
        const char *value = strchr(v, '=') ? v : getenv(v);

        strv_add(&texts, value ? value : "");
    }
    if (docker_auth_collect((const char *const *)texts, strv_len(texts), &doc, &why) < 0)
        output_note(ib->cli->json, "warning: registry credentials are not used: %s", why.msg);
    else if (doc && c->remote)
        output_note(ib->cli->json,
                    "registry credentials are not sent to '%s': the connection is not encrypted",
                    c->host);
    else if (doc)
        ib->logins = json_to_text(doc, false);
}

static int image_build_send_all(struct image_build *ib, struct client *c, struct err *err)
{
    char *target = NULL;
    struct sender s;
    int r = image_build_make_target(ib, &target, err);

    if (r < 0)
        return r;
    sender_init(&s, c, "POST", target, ib->cli->json);
    if (ib->digest_only)
        s.type = DIGEST_CONTEXT_TYPE;
    build_context_digest_only(ib->context, ib->digest_only, ib->need);
    build_context_remember(ib->context, c->paths.state);
    if (sender_write(&s, ib->secrets, image_build_length(ib->secrets)) < 0 ||
        sender_write(&s, ib->logins, image_build_length(ib->logins)) < 0)
        r = err_set(err, ERR_ENGINE, "the daemon stopped reading the request");
    else
        r = build_context_pack(ib->context, sender_write, &s, err);
    r = sender_end(&s, r, err);
    sender_done(&s);
    return r;
}

/* ---- the answer ---- */

static void image_build_show(struct image_build *ib, const char *line, const json_t *event)
{
    if (ib->view) {
        build_view_event(ib->view, event);
        return;
    }
    puts(line);
    fflush(stdout);
}

static void image_build_release(struct image_build *ib)
{
    for (char **line = ib->held; line && *line; line++) {
        _cleanup_json_ json_t *e = NULL;

        if (json_parse_output("a build event", *line, strlen(*line), &e, NULL) >= 0)
            image_build_show(ib, *line, e);
    }
    ib->held = strv_free(ib->held);
    ib->holding = false;
}

/* An empty list means that the builder needs all files. */
static void image_build_on_need(struct image_build *ib, const json_t *list)
{
    const json_t *digits;
    size_t i;

    ib->again = true;
    ib->all |= json_array_size(list) == 0;
    json_array_foreach (list, i, digits)
        if (json_is_string(digits))
            json_object_set_new(ib->need, json_string_value(digits), json_true());
}

/* Whether the event can belong to a step that does not run. */
static bool image_build_is_quiet(const char *kind)
{
    static const char *const quiet[] = {"step", "cached", "step_end"};

    for (size_t i = 0; i < ARRAY_SIZE(quiet); i++)
        if (STREQ(kind, quiet[i]))
            return true;
    return false;
}

static int image_build_on_line(struct image_build *ib, const char *line, struct err *err)
{
    _cleanup_json_ json_t *e = NULL;
    const char *kind;
    int r = json_parse_output("a build event", line, strlen(line), &e, err);

    if (r < 0)
        return r;
    kind = json_text_of(e, "event");
    if (ib->digest_only && STREQ(kind ?: "", "need")) {
        image_build_on_need(ib, json_object_get(e, "contents"));
        return 0;
    }
    if (ib->holding && !ib->again && !image_build_is_quiet(kind ?: ""))
        image_build_release(ib);
    if (ib->holding)
        strv_add(&ib->held, line);
    else if (!ib->again)
        image_build_show(ib, line, e);
    if (kind && STREQ(kind, "end") && !ib->end)
        ib->end = TAKE_PTR(e);
    return 0;
}

static int image_build_on_piece(struct image_build *ib, const char *data, size_t len,
                                struct err *err)
{
    const char *end;

    if (buf_append(&ib->lines, data, len) < 0)
        return err_set(err, ERR_LIMIT, "a build event is longer than %d bytes", EVENT_MAX);
    while ((end = memchr(buf_data(&ib->lines), '\n', ib->lines.len))) {
        size_t n = (size_t)(end - buf_data(&ib->lines));
        _cleanup_free_ char *line = xstrndup(buf_data(&ib->lines), n);
        int r = image_build_on_line(ib, line, err);

        if (r < 0)
            return r;
        buf_consume(&ib->lines, n + 1);
    }
    return 0;
}

/* Updates the times on the screen while no data arrives. */
static ssize_t image_build_read_some(struct image_build *ib, struct client *c, void *data,
                                     size_t len, struct err *err)
{
    for (;;) {
        _cleanup_err_ struct err why = ERR_INIT;
        ssize_t n = client_read_for(c, data, len, TICK, &why);

        if (n == -ERR_TIMEOUT && ib->holding && !ib->again)
            image_build_release(ib); /* the build runs a slow step */
        if (ib->view)
            build_view_tick(ib->view);
        if (n != -ERR_TIMEOUT)
            return n < 0 ? err_move(err, &why) : n;
    }
}

static int image_build_receive(struct image_build *ib, struct client *c, struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(EVENT_MAX / 4);
    ssize_t n;
    int r;

    c->on_slow = NULL; /* the response starts with the first step, which may take long */
    r = client_head(c, err);
    if (r < 0)
        return r;
    ib->accepted = true;
    while ((n = image_build_read_some(ib, c, piece, EVENT_MAX / 4, err)) > 0) {
        r = image_build_on_piece(ib, piece, (size_t)n, err);
        if (r < 0)
            return r;
    }
    if (n < 0)
        return (int)n;
    if (!ib->end)
        return err_set(err, ERR_ENGINE, "the daemon's response ended without a result");
    return 0;
}

static int image_build_failed(struct image_build *ib, struct err *err)
{
    const char *step = NULL;
    unsigned line = ib->view ? build_view_failure(ib->view, &step) : 0;

    json_to_err(ib->end, err);
    if (line)
        return err_wrap(err, "%s:%u: %s", build_context_label(ib->context), line, step);
    return step ? err_wrap(err, "%s", step) : -(int)err->code;
}

static void image_build_print_image(const json_t *image)
{
    const json_t *name;
    size_t i;

    output_text(stdout, json_text_of(image, "id"));
    json_array_foreach (json_object_get(image, "names"), i, name) {
        putchar(' ');
        output_text(stdout, json_string_value(name));
    }
    putchar('\n');
}

static int image_build_finish(struct image_build *ib, struct err *err)
{
    if (json_object_get(ib->end, "error")) {
        int r = image_build_failed(ib, err);

        /* The end event on stdout has the error. */
        return ib->cli->json ? err_code_exit(err->code) : r;
    }
    build_view_free(TAKE_PTR(ib->view));
    if (!ib->cli->json)
        image_build_print_image(json_object_get(ib->end, "image"));
    return 0;
}

/* ---- rounds ---- */

/* Discards the events of a round. */
static void image_build_forget(struct image_build *ib)
{
    bool shown = !ib->holding;

    ib->held = strv_free(ib->held);
    buf_clear(&ib->lines);
    json_decref(ib->end);
    ib->end = NULL;
    ib->accepted = false;
    ib->again = false;
    if (ib->view && shown) {
        build_view_free(ib->view);
        ib->view = build_view_new(ib->live);
    }
}

static int image_build_one_round(struct image_build *ib, struct client *c, struct err *err)
{
    int r;

    ib->holding = ib->digest_only;
    r = image_build_send_all(ib, c, err);
    if (r < 0)
        return r;
    r = image_build_receive(ib, c, err);
    if (r < 0)
        return r;
    if (ib->holding && !ib->again)
        image_build_release(ib);
    return 0;
}

static int image_build_rounds(struct image_build *ib, struct client *c, struct err *err)
{
    ib->need = json_object();
    for (unsigned round = 0;; round++) {
        _cleanup_err_ struct err why = ERR_INIT;
        bool refused;
        int r;

        ib->digest_only = round < DIGEST_ONLY_ROUNDS && !ib->all;
        r = image_build_one_round(ib, c, &why);
        /* An engine or a daemon without digest-only contexts refuses before it does anything. */
        refused = ib->digest_only && (r == -ERR_UNSUPPORTED || r == -ERR_INVALID) && !ib->accepted;
        if (!refused && (r < 0 || !ib->again))
            return r < 0 ? err_move(err, &why) : 0;
        ib->all |= r < 0;
        if (r < 0)
            client_disconnect(c);
        image_build_forget(ib);
    }
}

/* ---- the command ---- */

static int image_build_read_progress(struct image_build *ib, struct err *err)
{
    const char *how = args_get(ib->args, "progress");
    bool live = isatty(STDERR_FILENO);

    if (how && !STREQ(how, "plain") && !STREQ(how, "tty") && !STREQ(how, "auto"))
        return err_set(err, ERR_INVALID,
                       "--progress: unknown mode '%s'; supported: auto, plain, tty", how);
    if (how && !STREQ(how, "auto"))
        live = STREQ(how, "tty");
    ib->live = live;
    if (!ib->cli->json)
        ib->view = build_view_new(live);
    return 0;
}

int image_build(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_build_ struct image_build ib = {
        .cli = cli, .args = args, .lines = BUF_INIT(EVENT_MAX + EVENT_MAX / 4)};
    const char *folder = args->n_words > 1 ? args->words[1] : ".";
    struct client *c;
    int r;

    if (args->n_words > 2)
        return err_set(err, ERR_INVALID, "usage: ripcord image build [options] [CONTEXT]");
    if ((r = build_context_open(folder, args_get(args, "file"), &ib.context, err)) < 0 ||
        (r = image_build_check_dockerfile(&ib, err)) < 0 ||
        (r = image_build_read_progress(&ib, err)) < 0 ||
        (r = image_build_read_secrets(&ib, err)) < 0 ||
        (r = agents_from_args(args, &ib.agents, err)) < 0 || (r = cli_client(cli, &c, err)) < 0)
        return r;
    image_build_read_logins(&ib, c);
    r = image_build_rounds(&ib, c, err);
    return r < 0 ? r : image_build_finish(&ib, err);
}
