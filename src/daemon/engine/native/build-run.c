/*
 * One RUN of a build: an ephemeral sandbox on the layers so far, with the command as its first
 * exec. This is straight-line code on the build's worker: it reads the supervisor's messages from
 * the socket and the output from the journals, as far as the supervisor reports it. After the
 * sandbox has ended, its upper layer is moved to the folder that ripcord-build named.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/exec-request.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/sandbox-request.h"
#include "image/store/images.h"
#include "lib/base/base64.h"
#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/journal/journal.h"
#include "lib/journal/record.h"
#include "proto/plan.h"
#include "proto/supervisor.h"

enum { PIDS_MAX = 4096, PIECE = 64 << 10, LISTENER_SEQ = 1 };

#define STEP_NAME "build"
#define START_TIMEOUT (60 * USEC_PER_SEC)
#define UNDO_TIMEOUT (30 * USEC_PER_SEC)

struct build_run {
    struct native_engine *n;
    struct build *b;
    unsigned step;
    const struct deadline *by;
    int cancel_fd;
    struct sandbox_request req;
    struct native_step native;
    struct exec_request first;
    char *to; /* folder for the step's files, below the store */
    int conn; /* to the supervisor */
    struct journal_reader readers[JOURNAL_STREAMS];
    uint64_t passed[JOURNAL_STREAMS];
    struct end_record end;
    bool ended;
};

/* ---- the request ---- */

static int build_run_add_mounts(struct build_run *x, const json_t *list, struct err *err)
{
    const json_t *doc;
    size_t i;

    x->native.mounts = xcalloc(json_array_size(list) + 1, sizeof(*x->native.mounts));
    json_array_foreach (list, i, doc) {
        const char *source = NULL, *target = NULL;
        struct spec_mount *m = &x->native.mounts[x->native.n_mounts];
        const struct json_field fields[] = {{"source", JSON_FIELD_STRING, &source},
                                            {"target", JSON_FIELD_STRING, &target},
                                            {"read_only", JSON_FIELD_BOOL, &m->read_only}};
        int r = json_read(doc, "mounts", fields, ARRAY_SIZE(fields), err);

        if (r < 0)
            return r;
        if (!source || !target || x->native.n_mounts == PLAN_MOUNTS_MAX)
            return err_set(err, ERR_LIMIT, "a step has at most %d mounts", PLAN_MOUNTS_MAX);
        m->source = xasprintf("%s/images/store/%s", x->n->state_dir, source);
        m->target = xstrdup(target);
        x->native.n_mounts++;
    }
    return 0;
}

static const struct build_secret *build_run_find_secret(const struct build_request *req,
                                                        const char *id)
{
    for (size_t i = 0; i < req->n_secrets; i++)
        if (STREQ(req->secrets[i].id, id))
            return &req->secrets[i];
    return NULL;
}

/* A secret as ripcord-build asks for it. */
struct secret_request {
    const char *id, *name, *target, *env;
    bool required, has_owner, has_mode;
    uint64_t uid, gid, mode;
};

static int build_run_read_secret(const json_t *doc, struct secret_request *ret, struct err *err)
{
    struct secret_request a = {.id = ""};
    const struct json_field fields[] = {{"id", JSON_FIELD_STRING, &a.id},
                                        {"name", JSON_FIELD_STRING, &a.name},
                                        {"target", JSON_FIELD_STRING, &a.target},
                                        {"env", JSON_FIELD_STRING, &a.env},
                                        {"required", JSON_FIELD_BOOL, &a.required},
                                        {"uid", JSON_FIELD_U64, &a.uid},
                                        {"gid", JSON_FIELD_U64, &a.gid},
                                        {"mode", JSON_FIELD_U64, &a.mode}};
    int r = json_read(doc, "secrets", fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    a.has_owner = json_object_get(doc, "uid") != NULL;
    a.has_mode = json_object_get(doc, "mode") != NULL;
    if (a.uid > INT32_MAX || a.gid > INT32_MAX)
        return err_set(err, ERR_INVALID,
                       "secret '%.64s': uid %llu and gid %llu must be below 2147483648", a.id,
                       (unsigned long long)a.uid, (unsigned long long)a.gid);
    a.mode &= 0777;
    *ret = a;
    return 0;
}

static int build_run_give_secret(struct build_run *x, const struct build_secret *s,
                                 const struct secret_request *a, struct err *err)
{
    struct exec_request *q = &x->first;
    int r;

    if (a->env && strlen(s->value) == s->len)
        strv_env_set(&q->env, a->env, s->value);
    if (!a->name)
        return 0;
    r = parse_secret_name(a->name, err);
    if (r < 0)
        return r;
    q->secrets = xreallocarray(q->secrets, q->n_secrets + 1, sizeof(*q->secrets));
    q->secrets[q->n_secrets++] =
        (struct exec_secret){.name = xstrdup(a->name),
                             .value = xmemdup(s->value, s->len),
                             .len = s->len,
                             .target = a->target ? xstrdup(a->target) : NULL,
                             .has_owner = a->has_owner,
                             .has_mode = a->has_mode,
                             .uid = (uint32_t)a->uid,
                             .gid = (uint32_t)a->gid,
                             .mode = (uint32_t)a->mode};
    return 0;
}

static int build_run_add_secrets(struct build_run *x, const struct build_request *req,
                                 const json_t *list, struct err *err)
{
    const json_t *doc;
    size_t i;
    int r = 0;

    json_array_foreach (list, i, doc) {
        struct secret_request a = {.id = ""};
        const struct build_secret *s;

        r = build_run_read_secret(doc, &a, err);
        if (r < 0)
            return r;
        s = build_run_find_secret(req, a.id);
        if (!s && a.required) {
            err_set(err, ERR_INVALID, "secret '%.64s' was not given", a.id);
            return err_hint(err, "Give it with `--secret %.64s=@FILE`.", a.id);
        }
        r = s ? build_run_give_secret(x, s, &a, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int build_run_read_layers(struct build_run *x, const json_t *list, const char *none,
                                 struct err *err)
{
    _cleanup_strv_ char **layers = NULL;
    int r = json_read_strv(list, "layers", &layers, err);

    if (r < 0)
        return r;
    if (!strv_len(layers)) {
        x->native.lower_dir = xasprintf("%s/images/store/%s", x->n->state_dir, none);
        return 0;
    }
    x->native.on_host = images_begin_with_host(layers);
    return native_layers(x->n, layers, &x->native.layers, &x->native.lower_dir, err);
}

static int build_run_read_network(const char *name, enum spec_network *ret, struct err *err)
{
    static const char *const names[] = {[SPEC_NETWORK_NONE] = "none",
                                        [SPEC_NETWORK_PACKAGES] = "packages",
                                        [SPEC_NETWORK_OPEN] = "open"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (STREQ(name, names[i])) {
            *ret = (enum spec_network)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "unknown network '%.64s' for a build step", name);
}

/* The strings are in base64 (image/build/step-run.c). */
static int build_run_read_strings(const json_t *list, const char *what, char ***ret,
                                  struct err *err)
{
    _cleanup_buf_ struct buf bytes = BUF_INIT(COMMAND_STRING_MAX - 1);
    struct strv_list l = {0};
    const json_t *v;
    size_t i;

    json_array_foreach (list, i, v) {
        buf_clear(&bytes);
        if (!json_is_string(v) ||
            base64_decode(&bytes, json_string_value(v), json_string_length(v), NULL) < 0 ||
            memchr(buf_data(&bytes), 0, bytes.len)) {
            strv_free(l.v);
            return err_set(err, ERR_INVALID, "%s: string %zu of the step is not valid", what, i);
        }
        strv_list_push(&l, xstrdup(buf_data(&bytes)));
    }
    *ret = l.v;
    return 0;
}

static int build_run_read_ask(struct build_run *x, const struct build_request *req,
                              const json_t *doc, struct err *err)
{
    json_t *layers = NULL, *argv = NULL, *env = NULL, *mounts = NULL, *secrets = NULL;
    const char *none = "", *to = "", *user = "0", *workdir = "/", *network = "none";
    const struct json_field fields[] = {
        {"layers", JSON_FIELD_ARRAY, &layers},    {"argv", JSON_FIELD_ARRAY, &argv},
        {"env", JSON_FIELD_ARRAY, &env},          {"mounts", JSON_FIELD_ARRAY, &mounts},
        {"secrets", JSON_FIELD_ARRAY, &secrets},  {"none", JSON_FIELD_STRING, &none},
        {"to", JSON_FIELD_STRING, &to},           {"user", JSON_FIELD_STRING, &user},
        {"workdir", JSON_FIELD_STRING, &workdir}, {"network", JSON_FIELD_STRING, &network},
    };
    int r = json_read(doc, NULL, fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    r = build_run_read_layers(x, layers, none, err);
    if (r < 0)
        return r;
    r = build_run_read_strings(argv, "argv", &x->first.argv, err);
    if (r < 0)
        return r;
    r = build_run_read_strings(env, "env", &x->first.env, err);
    if (r < 0)
        return r;
    if (command_size(x->first.argv) + command_size(x->first.env) > COMMAND_MAX)
        return err_set(err, ERR_LIMIT, "the command and its variables are too large for Linux");
    r = build_run_add_mounts(x, mounts, err);
    if (r < 0)
        return r;
    r = build_run_add_secrets(x, req, secrets, err);
    if (r < 0)
        return r;
    x->to = xstrdup(to);
    x->first.cwd = xstrdup(workdir);
    x->req.spec.user = xstrdup(user);
    return build_run_read_network(network, &x->req.spec.network, err);
}

static int build_run_random_id(char ret[static EXEC_ID_LEN + 1], struct err *err)
{
    uint64_t n;

    if (getrandom(&n, sizeof(n), 0) != sizeof(n))
        return err_sys(err, errno, "make an id");
    snprintf(ret, EXEC_ID_LEN + 1, "%016llx", (unsigned long long)n);
    return 0;
}

static int build_run_fill_request(struct build_run *x, struct err *err)
{
    struct sysinfo si;
    int r = build_run_random_id(x->req.id, err);

    if (r < 0)
        return r;
    r = build_run_random_id(x->first.id, err);
    if (r < 0)
        return r;
    snprintf(x->req.name, sizeof(x->req.name), STEP_NAME);
    memset(x->req.hash, '0', sizeof(x->req.hash) - 1);
    x->req.ephemeral = x->req.fresh = true;
    /* Three quarters of the machine's memory: a build that takes more is ended, and not other
     * processes. */
    x->req.spec.memory = sysinfo(&si) < 0 ? 0 : (uint64_t)si.totalram * si.mem_unit / 4 * 3;
    x->req.spec.pids = PIDS_MAX;
    x->first.attach = true;
    x->req.first = &x->first;
    return 0;
}

static void build_run_done(struct build_run *x)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        journal_reader_done(&x->readers[i]);
    fd_close(x->conn);
    x->req.first = NULL;
    sandbox_spec_done(&x->req.spec);
    exec_request_wipe(&x->first);
    exec_request_done(&x->first);
    for (size_t i = 0; i < x->native.n_mounts; i++) {
        free(x->native.mounts[i].source);
        free(x->native.mounts[i].target);
    }
    free(x->native.mounts);
    free(x->native.lower_dir);
    strv_free(x->native.layers);
    free(x->to);
}

/* ---- the running command ---- */

static int build_run_open_journals(struct build_run *x, struct err *err)
{
    _cleanup_free_ char *dir = xasprintf("%s/%s", x->req.id, x->first.id);
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        int r;

        if (x->readers[i].dirfd >= 0)
            continue;
        r = journal_reader_open(&x->readers[i], x->n->execs, dir, (enum journal_stream)i, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Passes on the output up to `end`. Output that the journal has dropped already is skipped. */
static int build_run_pass_output(struct build_run *x, enum journal_stream stream, uint64_t end,
                                 struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    enum build_stream as = stream == JOURNAL_STDOUT ? BUILD_STDOUT : BUILD_STDERR;

    while (x->passed[stream] < end) {
        ssize_t n = journal_reader_read(&x->readers[stream], x->passed[stream], piece,
                                        MIN((uint64_t)PIECE, end - x->passed[stream]), err);

        if (n == -ERR_NOT_FOUND) {
            uint64_t last;

            if (err)
                err_done(err);
            n = journal_reader_extent(&x->readers[stream], &x->passed[stream], &last, err);
            if (n >= 0)
                continue;
        }
        if (n <= 0)
            return (int)n;
        build_step_output(x->b, x->step, as, piece, (size_t)n);
        x->passed[stream] += (uint64_t)n;
    }
    return 0;
}

static int build_run_send(const struct build_run *x, struct sup_writer *w, struct err *err)
{
    int r = sup_finish(w, err);

    if (r < 0)
        return r;
    r = fd_send(x->conn, buf_data(&w->buf), w->buf.len, NULL, 0, 0);
    /* A supervisor that has hung up has sent the reason before, and it is read next. */
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        return err_sys(err, -r, "send to the step's supervisor");
    return 0;
}

static int build_run_send_ack(const struct build_run *x, struct err *err)
{
    struct sup_writer w;
    int r;

    sup_begin(&w, SUP_ACK, 0);
    sup_put_str(&w, SUP_TAG_EXEC, x->first.id);
    sup_put_u64(&w, SUP_TAG_STDOUT, x->passed[JOURNAL_STDOUT]);
    sup_put_u64(&w, SUP_TAG_STDERR, x->passed[JOURNAL_STDERR]);
    r = build_run_send(x, &w, err);
    sup_writer_done(&w);
    return r;
}

static int build_run_ask_listener(const struct build_run *x, struct err *err)
{
    struct sup_writer w;
    int r;

    if (x->req.spec.network != SPEC_NETWORK_PACKAGES)
        return 0;
    sup_begin(&w, SUP_LISTENER, LISTENER_SEQ);
    r = build_run_send(x, &w, err);
    sup_writer_done(&w);
    return r;
}

static void build_run_send_packages_news(const struct build_run *x, int fd)
{
    struct engine_news news = {.kind = ENGINE_NEWS_PACKAGES, .fd = fd};

    memcpy(news.id, x->req.id, sizeof(news.id));
    engine_send_news(&x->n->engine, &news);
}

static int build_run_on_output(struct build_run *x, uint64_t out, uint64_t errors, struct err *err)
{
    int r = build_run_open_journals(x, err);

    if (r < 0)
        return r;
    r = build_run_pass_output(x, JOURNAL_STDOUT, out, err);
    if (r < 0)
        return r;
    r = build_run_pass_output(x, JOURNAL_STDERR, errors, err);
    if (r < 0)
        return r;
    return build_run_send_ack(x, err);
}

static int build_run_on_ended(struct build_run *x, const char *record, size_t len, struct err *err)
{
    int r = end_record_parse(record, len, &x->end, err);

    if (r < 0)
        return r;
    x->ended = true;
    if (x->end.stdout_bytes || x->end.stderr_bytes)
        r = build_run_on_output(x, x->end.stdout_bytes, x->end.stderr_bytes, err);
    return r;
}

/* One message of the supervisor; *fd: the descriptor that came with it, or -1. */
static int build_run_on_message(struct build_run *x, const char *packet, size_t len, int *fd,
                                struct err *err)
{
    struct sup_value v, record = {0};
    struct sup_reader rd;
    uint64_t out = 0, errors = 0;
    int r = sup_read(&rd, packet, len, err);

    if (r < 0)
        return r;
    while ((r = sup_next(&rd, &v, err)) > 0) {
        if (v.tag == SUP_TAG_STDOUT)
            out = v.u64;
        else if (v.tag == SUP_TAG_STDERR)
            errors = v.u64;
        else if (v.tag == SUP_TAG_RECORD)
            record = v;
    }
    if (r < 0)
        return r;
    if (rd.head.type == SUP_OUTPUT)
        return build_run_on_output(x, out, errors, err);
    if (rd.head.type == SUP_ENDED && record.data)
        return build_run_on_ended(x, record.data, record.length, err);
    if (rd.head.type == SUP_RESULT && rd.head.seq == LISTENER_SEQ && *fd >= 0)
        build_run_send_packages_news(x, TAKE_FD(*fd));
    return 0;
}

static int build_run_await_message(const struct build_run *x, struct err *err)
{
    struct pollfd p[] = {{.fd = x->conn, .events = POLLIN},
                         {.fd = build_stop_fd(x->b), .events = POLLIN},
                         {.fd = x->cancel_fd, .events = POLLIN}};
    int r = poll(p, ARRAY_SIZE(p), deadline_ms(x->by));

    if (r < 0 && errno != EINTR)
        return err_sys(err, errno, "wait for the step");
    if (r == 0)
        return err_set(err, ERR_TIMEOUT, "the build did not end in time");
    if (r > 0 && (p[1].revents || p[2].revents))
        return err_set(err, ERR_CONFLICT, "the build was cancelled");
    return r > 0 && p[0].revents;
}

/* Until the supervisor has ended, which ends the sandbox. */
static int build_run_follow(struct build_run *x, struct err *err)
{
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX + 8);
    int r = build_run_ask_listener(x, err);

    if (r < 0)
        return r;
    for (;;) {
        _cleanup_close_ int fd = -1;
        size_t n_fds = 1;
        ssize_t n;

        r = build_run_await_message(x, err);
        if (r < 0)
            return r;
        if (r == 0)
            continue;
        n = fd_recv(x->conn, packet, SUP_MSG_MAX, &fd, &n_fds, MSG_DONTWAIT);
        if (n == -EAGAIN || n == -EINTR)
            continue;
        if (n == 0 || n == -ECONNRESET)
            break;
        if (n < 0)
            return err_sys(err, (int)-n, "receive from the step's supervisor");
        r = build_run_on_message(x, packet, (size_t)n, &fd, err);
        if (r < 0)
            return r;
    }
    return x->ended ? 0 : err_set(err, ERR_ENGINE, "the step's supervisor ended without a report");
}

/* ---- the end ---- */

static int build_run_judge(const struct build_run *x, struct err *err)
{
    const struct end_record *e = &x->end;
    _cleanup_free_ char *command = strv_join(x->first.argv, " ");

    if (e->cause == END_EXITED && e->exit_code == 0)
        return 0;
    if (e->cause == END_START_FAILED)
        return err_set(err, ERR_INVALID, "'%.200s' cannot be started: %s", command, e->message);
    if (e->cause == END_EXITED)
        return err_set(err, ERR_INVALID, "'%.200s' failed: exit status %d", command, e->exit_code);
    return err_set(err, ERR_INVALID, "'%.200s' was ended: %s", command, end_cause_name(e->cause));
}

static void build_run_list_step(struct native_engine *n, const char *id, bool on)
{
    char **left = NULL;

    pthread_mutex_lock(&n->lock);
    for (char **s = n->steps; s && *s; s++)
        if (!STREQ(*s, id))
            strv_add(&left, *s);
    if (on)
        strv_add(&left, id);
    strv_free(n->steps);
    n->steps = left;
    pthread_mutex_unlock(&n->lock);
}

static int build_run_start(struct build_run *x, struct err *err)
{
    struct deadline by = deadline_in(START_TIMEOUT);
    struct engine_sandbox sandbox = {.supervisor_fd = -1};
    int r = native_create(&x->n->engine, &x->req, &by, err);

    if (r < 0)
        return r;
    r = native_start_step(&x->n->engine, &x->req, &x->native, &by, &sandbox, err);
    if (r < 0)
        return r;
    x->conn = sandbox.supervisor_fd;
    strv_free(sandbox.warnings);
    return sandbox.first_sent
               ? 0
               : err_set(err, ERR_SYSTEM, "the command could not be sent to the step's supervisor");
}

static int build_run_finish(const struct build_run *x, const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *upper = xasprintf("%s/root/upper", x->req.id);
    _cleanup_free_ char *to = xasprintf("%s/images/store/%s", x->n->state_dir, x->to);
    int r = native_cleanup(&x->n->engine, x->req.id, by, err);

    if (r < 0)
        return r;
    r = build_run_judge(x, err);
    if (r < 0)
        return r;
    /* The rename replaces the empty folder that ripcord-build made. */
    if (renameat(x->n->sandboxes, upper, AT_FDCWD, to) < 0)
        return err_sys(err, errno, "keep the files of the step");
    return 0;
}

/* Whatever happens, the sandbox is removed at the end; reconcile finds what cannot be removed. */
static int build_run_step(struct build_run *x, struct err *err)
{
    struct deadline by;
    int r;

    build_run_list_step(x->n, x->req.id, true);
    r = build_run_start(x, err);
    r = r < 0 ? r : build_run_follow(x, err);
    build_run_send_packages_news(x, -1);
    by = deadline_in(UNDO_TIMEOUT);
    r = r < 0 ? r : build_run_finish(x, &by, err);
    native_remove(&x->n->engine, x->req.id, &by, NULL);
    build_run_list_step(x->n, x->req.id, false);
    return r;
}

int native_build_run(const struct native_task *t, unsigned step, const json_t *ask, json_t **ret,
                     struct err *err)
{
    _cleanup_(build_run_done) struct build_run x = {
        .n = t->n, .b = t->b, .step = step, .by = t->by, .cancel_fd = t->cancel_fd, .conn = -1};
    int r;

    for (int i = 0; i < JOURNAL_STREAMS; i++)
        x.readers[i] = (struct journal_reader){.dirfd = -1, .fd = -1};
    *ret = json_object();
    r = build_run_read_ask(&x, t->req, ask, err);
    if (r < 0)
        return r;
    r = build_run_fill_request(&x, err);
    if (r < 0)
        return r;
    return build_run_step(&x, err);
}
