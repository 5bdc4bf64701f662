/*
 * Straight-line calls of the engine, each on a thread of its own (work.c). They see only their
 * arguments, the client and the plan, which never change.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

#define GUEST_PATH "/.ripcord/guest"

enum { REAP_IN_MAX = 64 << 10, STATUS_POLL_MS = 50, STATUS_KILLED = 128 + SIGKILL };

/* ---- an exec of the engine ---- */

static json_t *calls_open_body(const char *user, const char *const *args)
{
    json_t *cmd = json_array();

    json_array_append_new(cmd, json_string(GUEST_PATH));
    for (; *args; args++)
        json_array_append_new(cmd, json_string(*args));
    return json_pack("{s:b, s:b, s:b, s:b, s:s, s:o}", "AttachStdin", 1, "AttachStdout", 1,
                     "AttachStderr", 1, "Tty", 0, "User", user, "Cmd", cmd);
}

static int calls_create_exec(const struct relay *r, const char *user, const char *const *args,
                             const struct deadline *by, char **ret, enum docker_reason *reason,
                             struct err *err)
{
    _cleanup_free_ char *path = docker_path("/containers/%s/exec", r->plan.container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    json_t *body = calls_open_body(user, args);
    const char *id;
    int n;

    if (!body) /* JSON cannot hold text that is not UTF-8 */
        return err_set(err, ERR_INVALID, "the command contains text that is not UTF-8");
    n = docker_call(r->docker, "POST", path, body, by, &reply, err);
    json_decref(body);
    *reason = reply.reason;
    if (n < 0)
        return n;
    id = json_string_value(json_object_get(reply.json, "Id"));
    if (!id)
        return err_set(err, ERR_ENGINE, "the engine returned an exec without an id");
    *ret = xstrdup(id);
    return 0;
}

int call_open(const struct relay *r, const char *user, const char *const *args,
              const struct deadline *by, struct opened *ret, enum docker_reason *ret_reason,
              struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_free_ char *path = NULL, *id = NULL;
    json_t *body;
    int n;

    n = calls_create_exec(r, user, args, by, &id, ret_reason, err);
    if (n < 0)
        return n;
    path = docker_path("/exec/%s/start", id);
    body = json_pack("{s:b, s:b}", "Detach", 0, "Tty", 0);
    n = docker_hijack(r->docker, path, body, by, &ret->stream, &reply, err);
    json_decref(body);
    *ret_reason = reply.reason;
    if (n < 0)
        return n;
    ret->exec_id = TAKE_PTR(id);
    return 0;
}

int call_exec_status(const struct relay *r, const char *exec_id, const struct deadline *by,
                     int *ret_status, struct err *err)
{
    _cleanup_free_ char *path = docker_path("/exec/%s/json", exec_id);

    for (;;) {
        _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
        const json_t *code;
        int n = docker_call(r->docker, "GET", path, NULL, by, &reply, err);

        if (n < 0)
            return n;
        /* While it runs, ExitCode is 0 with Podman and null with Docker. */
        code = json_object_get(reply.json, "ExitCode");
        if (json_is_false(json_object_get(reply.json, "Running")) && json_is_integer(code)) {
            *ret_status = (int)json_integer_value(code);
            return 0;
        }
        if (deadline_passed(by))
            return err_set(err, ERR_TIMEOUT, "the engine reports that the exec is still running");
        poll(NULL, 0, STATUS_POLL_MS);
    }
}

/* ---- the container ---- */

/* The engine's flag stays true after any process was a victim. The kernel of the container was one
 * if it was also killed. */
static bool calls_show_oom(const json_t *state)
{
    return json_is_true(json_object_get(state, "OOMKilled")) &&
           json_integer_value(json_object_get(state, "ExitCode")) == STATUS_KILLED;
}

int call_inspect(const struct relay *r, const struct deadline *by, struct relay_container *ret,
                 struct err *err)
{
    _cleanup_free_ char *path = docker_path("/containers/%s/json", r->plan.container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *state;
    int n;

    *ret = (struct relay_container){.life = LIFE_GONE};
    n = docker_call(r->docker, "GET", path, NULL, by, &reply, err);
    if (n < 0 && reply.reason == DOCKER_NO_CONTAINER) {
        err_done(err);
        return 0;
    }
    if (n < 0)
        return n;
    state = json_object_get(reply.json, "State");
    if (!json_is_object(state))
        return err_set(err, ERR_ENGINE, "the engine did not report the container's state");
    ret->pid = (int)json_integer_value(json_object_get(state, "Pid"));
    if (r->sup.pid && ret->pid && ret->pid != r->sup.pid)
        return 0; /* another program started the container again: our run has ended */
    if (json_is_true(json_object_get(state, "Paused")))
        ret->life = LIFE_PAUSED;
    else if (json_is_true(json_object_get(state, "Running")))
        ret->life = LIFE_RUNNING;
    else
        ret->oom = r->plan.own_kernel && calls_show_oom(state);
    return 0;
}

/* ---- reaping ---- */

struct talk {
    int fd;
    struct docker_demux demux;
    struct buf in;
};

/* Keeps the guest's stdout; the engine's other output is not needed here. */
static int calls_take(struct talk *t, const char *data, size_t len, struct err *err)
{
    size_t used, off, n;
    int stream;

    do {
        int r = docker_demux_next(&t->demux, data, len, &used, &stream, &off, &n, err);

        if (r < 0)
            return r;
        if (n && stream == DOCKER_STDOUT && buf_append(&t->in, data + off, n) < 0)
            return err_set(err, ERR_INVALID, "the guest's answer is too long");
        data += used;
        len -= used;
    } while (used);
    return 0;
}

static int calls_receive(struct talk *t, const struct deadline *by, struct err *err)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    char chunk[4096];
    ssize_t n;

    if (poll(&p, 1, deadline_ms(by)) == 0)
        return err_set(err, ERR_TIMEOUT, "the guest does not answer");
    n = read(t->fd, chunk, sizeof(chunk));
    if (n < 0)
        return errno == EINTR ? 0 : err_sys(err, errno, "read from the guest");
    if (n == 0)
        return err_set(err, ERR_ENGINE, "the guest ended without an answer");
    return calls_take(t, chunk, (size_t)n, err);
}

/* The guest sends HELLO, then DONE or FAILED. */
static int calls_await_done(struct talk *t, const struct deadline *by, struct err *err)
{
    struct guest_frame f;
    size_t used;

    for (;;) {
        int r = guest_parse(buf_data(&t->in), t->in.len, GUEST_SIDE_GUEST, &f, &used, err);

        if (r < 0)
            return r;
        if (r == 0) {
            r = calls_receive(t, by, err);
            if (r < 0)
                return r;
            continue;
        }
        if (f.type == GUEST_DONE)
            return 0;
        if (f.type == GUEST_FAILED) {
            guest_get_failed(&f, err);
            return -(int)err->code;
        }
        buf_consume(&t->in, used);
    }
}

int call_reap(const struct relay *r, const char *user, uint32_t guest_pid,
              const struct deadline *by, struct err *err)
{
    struct talk t = {.demux = DOCKER_DEMUX_INIT, .in = BUF_INIT(REAP_IN_MAX)};
    struct opened opened = {.stream.fd = -1};
    char pid[16];
    const char *const args[] = {"reap", guest_pid ? pid : NULL, NULL};
    enum docker_reason reason;
    int e;

    snprintf(pid, sizeof(pid), "%u", guest_pid);
    e = call_open(r, user, args, by, &opened, &reason, err);
    if (e < 0)
        return e;
    t.fd = opened.stream.fd;
    e = calls_take(&t, buf_data(&opened.stream.early), opened.stream.early.len, err);
    if (e >= 0)
        e = calls_await_done(&t, by, err);
    fd_close(opened.stream.fd);
    buf_done(&opened.stream.early);
    buf_done(&t.in);
    free(opened.exec_id);
    return e;
}
