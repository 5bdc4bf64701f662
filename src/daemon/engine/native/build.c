/*
 * Builds on the native engine. The program ripcord-build does the work in a process of its own,
 * because it parses files of others. This file starts it, passes its events on and carries out its
 * requests (build-serve.h, build-run.c). A cancelled build is killed. Whatever the end, its
 * temporary folder is deleted.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/build-serve.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/program.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { LINE_MAX_BYTES = 4 << 20, PIECE = 64 << 10, NAME_LEN = 32, CONTEXT_FD = 3 };

#define SILENCE_TIMEOUT (5 * USEC_PER_SEC)

struct native_builder {
    struct native_engine *n;
    const struct build_request *req;
    struct build *b;
    const struct deadline *by;
    char name[NAME_LEN]; /* name of its folder */
    struct program process;
    int to;
    struct buf lines;
    struct build_serve *serve;
    unsigned *steps; /* owned: the numbers of its steps in build_*() calls */
    size_t n_steps;
    char *ret; /* owned: the result, once `over` */
    bool over;
};

/* ---- the process ---- */

static int native_build_start(struct native_builder *x, int in, struct err *err)
{
    _cleanup_free_ char *store = native_store_path(x->n), *ids = native_store_ids(x->n);
    const char *const argv[] = {"ripcord-build", store, ids, x->name, NULL};
    const struct process_fd fds[] = {{in, STDIN_FILENO}, {x->req->context, CONTEXT_FD}};

    return program_start(x->n->libexec_dir, argv, NULL, fds, ARRAY_SIZE(fds), &x->process, err);
}

static int native_build_begin(struct native_builder *x, struct err *err)
{
    int in[2], r;

    if (pipe2(in, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    r = native_build_start(x, in[0], err);
    fd_close(in[0]);
    x->to = in[1];
    return r < 0 ? r
                 : build_serve_new(&(struct native_task){x->n, x->req, x->b, x->by, -1}, x->to,
                                   &x->serve, err);
}

/* Deletes its temporary folder, in the background. */
static void native_build_delete_folder(const struct native_builder *x)
{
    _cleanup_free_ char *store = native_store_path(x->n), *path = xasprintf("%s/tmp", store);
    _cleanup_close_ int tmp = -1;

    if (*x->name && dir_open(AT_FDCWD, path, &tmp, NULL) >= 0)
        delete_queue_add(x->n->delete_queue, tmp, x->name, NULL);
}

/* ---- what it says, and what it is told ---- */

static json_t *native_build_texts_json(char *const *v)
{
    json_t *list = json_array();

    for (; v && *v; v++)
        json_array_append_new(list, json_string(*v));
    return list;
}

static int native_build_send_request(struct native_builder *x, struct err *err)
{
    _cleanup_json_ json_t *doc = json_object();

    json_object_set_new(doc, "dockerfile", json_string(x->req->dockerfile));
    json_object_set_new(doc, "tags", native_build_texts_json(x->req->tags));
    json_object_set_new(doc, "args", native_build_texts_json(x->req->args));
    json_object_set_new(doc, "agents", native_build_texts_json(x->req->agents));
    json_object_set_new(doc, "no_cache", json_boolean(x->req->no_cache));
    json_object_set_new(doc, "pull", json_boolean(x->req->pull));
    json_object_set_new(doc, "thin", json_boolean(x->req->digest_only));
    json_object_set_new(doc, "host", json_string(native_host_generation(x->n)));
    if (x->req->network)
        json_object_set_new(doc, "network", json_string(x->req->network));
    if (x->req->target)
        json_object_set_new(doc, "target", json_string(x->req->target));
    return build_serve_send(x->serve, doc, err);
}

/* ripcord-build numbers its steps from 1, too, in the order of their begin. */
static int native_build_begin_step(struct native_builder *x, const json_t *doc, struct err *err)
{
    const char *stage = json_string_value(json_object_get(doc, "stage"));
    const char *text = json_string_value(json_object_get(doc, "step"));
    const struct build_step_info s = {
        .stage = stage ? stage : "",
        .n = (unsigned)json_integer_value(json_object_get(doc, "n")),
        .of = (unsigned)json_integer_value(json_object_get(doc, "of")),
        .text = text ? text : "",
        .line = (unsigned)json_integer_value(json_object_get(doc, "line")),
    };

    if (x->n_steps >= BUILD_STEPS_MAX)
        return err_set(err, ERR_LIMIT, "the build has over %d steps", BUILD_STEPS_MAX);
    x->steps = xreallocarray(x->steps, x->n_steps + 1, sizeof(*x->steps));
    x->steps[x->n_steps++] = build_step_begin(x->b, &s);
    return 0;
}

static unsigned native_build_step_of(const struct native_builder *x, const json_t *doc)
{
    json_int_t id = json_integer_value(json_object_get(doc, "id"));

    return id > 0 && (size_t)id <= x->n_steps ? x->steps[id - 1] : 0;
}

/* The digests go into a line of ours unescaped, so they are checked. */
static int native_build_on_need(const struct native_builder *x, const json_t *list, struct err *err)
{
    _cleanup_strv_ char **digits = NULL;
    int r = json_read_strv(list, "need", &digits, err);

    if (r < 0)
        return r;
    for (char **d = digits; d && *d; d++)
        if (strlen(*d) != 64 || strspn(*d, "0123456789abcdef") != 64)
            return err_set(err, ERR_ENGINE, "ripcord-build sent an invalid digest '%.80s'", *d);
    build_need(x->b, (const char *const *)digits, strv_len(digits));
    return 0;
}

static int native_build_on_line(struct native_builder *x, const char *line, size_t len,
                                struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *value;
    unsigned step;
    int r = json_parse("a message of ripcord-build", line, len, &doc, err);

    if (r < 0)
        return r;
    step = native_build_step_of(x, doc);
    if (json_object_get(doc, "step")) {
        return native_build_begin_step(x, doc, err);
    } else if (json_object_get(doc, "cached")) {
        build_step_cached(x->b, step);
    } else if ((value = json_object_get(doc, "end"))) {
        build_step_end(x->b, step, json_string_value(value));
    } else if ((value = json_object_get(doc, "need"))) {
        return native_build_on_need(x, value, err);
    } else if (build_serve_is_request(doc)) {
        return build_serve_begin(x->serve, step, TAKE_PTR(doc), err);
    } else if (json_object_get(doc, "cancel")) {
        build_serve_cancel(x->serve);
    } else if ((value = json_object_get(doc, "done"))) {
        x->ret = json_to_text(value, false);
        x->over = true;
    } else {
        return json_to_err(doc, err);
    }
    return 0;
}

static int native_build_read_more(struct native_builder *x, struct err *err)
{
    struct pollfd p[2] = {{.fd = x->process.out, .events = POLLIN},
                          {.fd = build_stop_fd(x->b), .events = POLLIN}};
    char *room;
    ssize_t n;

    while (poll(p, 2, deadline_ms(x->by)) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "wait for ripcord-build");
    if (p[1].revents)
        return err_set(err, ERR_CONFLICT, "the build was cancelled");
    if (!p[0].revents)
        return err_set(err, ERR_TIMEOUT, "the build did not end in time");
    room = buf_reserve(&x->lines, PIECE);
    if (!room)
        return err_set(err, ERR_LIMIT, "a line of ripcord-build is over %d bytes", LINE_MAX_BYTES);
    n = read(x->process.out, room, PIECE);
    if (n < 0)
        return errno == EINTR ? 0 : err_sys(err, errno, "receive from ripcord-build");
    if (n == 0)
        return err_set(err, ERR_ENGINE, "ripcord-build ended without a result");
    buf_commit(&x->lines, (size_t)n);
    return 0;
}

static int native_build_read_messages(struct native_builder *x, struct err *err)
{
    int r = native_build_send_request(x, err);

    while (r >= 0 && !x->over) {
        const char *text = buf_data(&x->lines), *end = memchr(text, '\n', x->lines.len);

        if (!end) {
            r = native_build_read_more(x, err);
            continue;
        }
        r = native_build_on_line(x, text, (size_t)(end - text), err);
        buf_consume(&x->lines, (size_t)(end - buf_data(&x->lines)) + 1);
    }
    return r;
}

/* ---- the whole ---- */

static int native_build_check_request(const struct native_engine *n,
                                      const struct build_request *req, struct err *err)
{
    if (!n->ranges && !n->subids.uid) {
        err_set(err, ERR_UNSUPPORTED,
                "images cannot be built on this machine: no ids for the files' owners");
        return err_hint(err, "Set up subordinate ids: run `ripcord doctor` for the command.");
    }
    if (req->network && STREQ(req->network, "open") && !(n->engine.caps & ENGINE_CAP_NET_OPEN)) {
        err_set(err, ERR_UNSUPPORTED, "network 'open' is not available on this machine");
        return err_hint(err, "Run `ripcord doctor` to see what is missing.");
    }
    if (req->platform && !STREQ(req->platform, NATIVE_PLATFORM)) {
        err_set(err, ERR_UNSUPPORTED, "the native engine does not build for '%.64s'",
                req->platform);
        return err_hint(err, "Leave the platform out: builds are for this machine, " NATIVE_PLATFORM
                             ".");
    }
    return 0;
}

static int native_build_make_name(struct native_builder *x, struct err *err)
{
    uint64_t n;

    if (getrandom(&n, sizeof(n), 0) != sizeof(n))
        return err_sys(err, errno, "name the build");
    snprintf(x->name, sizeof(x->name), "build-%016llx", (unsigned long long)n);
    return 0;
}

/* The processes that build stages have its stdout and die with it, a moment later. Nothing may
 * be removed under them, so this waits until the pipe is closed. */
static void native_build_await_stages(int said)
{
    struct deadline by = deadline_in(SILENCE_TIMEOUT);
    struct pollfd p = {.fd = said, .events = POLLIN};
    char rest[4096];
    int r;

    do
        r = said < 0 ? 0 : poll(&p, 1, deadline_ms(&by));
    while ((r < 0 && errno == EINTR) || (r > 0 && read(said, rest, sizeof(rest)) > 0));
}

static int native_build_work(struct native_builder *x, struct err *err)
{
    int r = native_build_check_request(x->n, x->req, err);

    if (r < 0)
        return r;
    r = native_build_make_name(x, err);
    if (r < 0)
        return r;
    r = native_build_begin(x, err);
    if (r < 0)
        return r;
    return native_build_read_messages(x, err);
}

/* A builder that has sent its result ends by itself. */
static void native_build_end(struct native_builder *x)
{
    _cleanup_buf_ struct buf rest = BUF_INIT(KIB(4));
    _cleanup_close_ int said = -1;
    int status = 0;

    build_serve_free(x->serve);
    x->to = fd_close(x->to);
    if (!x->over || program_finish(&x->process, x->by, &rest, &status, NULL) < 0) {
        said = fcntl(x->process.out, F_DUPFD_CLOEXEC, 0);
        program_end(&x->process);
        native_build_await_stages(said);
    }
    native_build_delete_folder(x);
}

int native_build(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err)
{
    struct native_builder x = {.n = native_of(e),
                               .req = req,
                               .b = b,
                               .by = by,
                               .to = -1,
                               .process = PROGRAM_INIT,
                               .lines = BUF_INIT(LINE_MAX_BYTES)};
    int r = native_build_work(&x, err);

    native_build_end(&x);
    if (r >= 0)
        *ret = TAKE_PTR(x.ret);
    free(x.ret);
    free(x.steps);
    buf_done(&x.lines);
    return r;
}
