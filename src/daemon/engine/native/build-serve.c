#include "daemon/engine/native/build-serve.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/engine/build.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/json-lines.h"

enum { AT_ONCE_MAX = 64 };

struct build_conn {
    struct native_task task; /* cancel_fd: the connection */
    pthread_t thread;
    struct json_lines lines;
    unsigned step;  /* number of its current step; 0: between steps */
    struct err err; /* set: an invalid message has ended the connection */
};

struct build_serve {
    struct native_task task;
    struct build_conn *conns[AT_ONCE_MAX]; /* NULL: free */
    struct err err;                        /* the first of the connections */
};

/* ---- events, on the connection's thread ---- */

static int build_serve_begin_step(struct build_conn *c, const json_t *doc, struct err *err)
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

    c->step = build_step_begin(c->task.b, &s);
    return c->step ? 0 : err_set(err, ERR_LIMIT, "the build has over %d steps", BUILD_STEPS_MAX);
}

static void build_serve_end_step(struct build_conn *c, const char *error)
{
    build_step_end(c->task.b, c->step, error);
    c->step = 0;
}

/* The digests go into a line of ours unescaped, so they are checked. */
static int build_serve_on_need(const struct build_conn *c, const json_t *list, struct err *err)
{
    _cleanup_strv_ char **digits = NULL;
    int r = json_read_strv(list, "need", &digits, err);

    if (r < 0)
        return r;
    for (char **d = digits; d && *d; d++)
        if (strlen(*d) != 64 || strspn(*d, "0123456789abcdef") != 64)
            return err_set(err, ERR_ENGINE, "invalid digest '%.80s'", *d);
    build_need(c->task.b, (const char *const *)digits, strv_len(digits));
    return 0;
}

/* ---- requests, on the connection's thread ---- */

static int build_serve_flush(const struct native_task *t _unused_, unsigned step _unused_,
                             const json_t *ask _unused_, json_t **ret, struct err *err _unused_)
{
    *ret = json_object(); /* the events before it have been passed on */
    return 0;
}

static const struct build_request_type {
    const char *name;
    native_task_fn fn;
} request_types[] = {{"run", native_build_run},
                     {"pull", native_build_pull},
                     {"fetch", native_build_fetch},
                     {"flush", build_serve_flush}};

static int build_serve_on_request(struct build_conn *c, const json_t *doc, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(request_types); i++) {
        const json_t *ask = json_object_get(doc, request_types[i].name);
        _cleanup_err_ struct err why = ERR_INIT;
        json_t *answer = NULL;

        if (!ask)
            continue;
        if (request_types[i].fn(&c->task, c->step, ask, &answer, &why) < 0) {
            json_decref(answer);
            answer = json_from_err(&why);
        }
        (void)json_lines_write(&c->lines, answer); /* a lost connection is noticed by its reader */
        return 0;
    }
    return err_set(err, ERR_ENGINE, "unknown message");
}

static int build_serve_on_message(struct build_conn *c, const json_t *doc, struct err *err)
{
    const json_t *value;

    if (json_object_get(doc, "step"))
        return build_serve_begin_step(c, doc, err);
    if ((value = json_object_get(doc, "need")))
        return build_serve_on_need(c, value, err);
    if (json_object_get(doc, "cached"))
        build_step_cached(c->task.b, c->step);
    else if ((value = json_object_get(doc, "end")))
        build_serve_end_step(c, json_string_value(value));
    else
        return build_serve_on_request(c, doc, err);
    return 0;
}

/* ---- connections ---- */

static void *build_serve_work(void *arg)
{
    struct build_conn *c = arg;
    int r = 1;

    while (r > 0) {
        _cleanup_json_ json_t *doc = NULL;

        r = json_lines_next(&c->lines, &doc, &c->err);
        if (r > 0 && build_serve_on_message(c, doc, &c->err) < 0)
            break;
    }
    if (c->step)
        build_serve_end_step(c, "cancelled: the build has failed");
    shutdown(c->lines.fd, SHUT_RDWR); /* ends a process whose message was invalid */
    return NULL;
}

/* Frees a connection whose thread has been joined. */
static void build_serve_drop(struct build_serve *s, size_t i)
{
    struct build_conn *c = TAKE_PTR(s->conns[i]);

    if (c->err.code != ERR_NONE && s->err.code == ERR_NONE) {
        err_move(&s->err, &c->err);
        err_wrap(&s->err, "ripcord-build");
    }
    err_done(&c->err);
    json_lines_done(&c->lines);
    free(c);
}

/* NULL: there are AT_ONCE_MAX. */
static struct build_conn **build_serve_find_place(struct build_serve *s)
{
    for (size_t i = 0; i < AT_ONCE_MAX; i++) {
        if (s->conns[i] && pthread_tryjoin_np(s->conns[i]->thread, NULL) == 0)
            build_serve_drop(s, i);
        if (!s->conns[i])
            return &s->conns[i];
    }
    return NULL;
}

struct build_serve *build_serve_new(const struct native_task *task)
{
    struct build_serve *s = xnew0(struct build_serve);

    s->task = *task;
    return s;
}

int build_serve_open(struct build_serve *s, int *ret, struct err *err)
{
    struct build_conn *c, **place = build_serve_find_place(s);
    int ends[2], r;

    if (!place)
        return err_set(err, ERR_LIMIT, "ripcord-build opened over %d connections", AT_ONCE_MAX);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, errno, "make a connection for ripcord-build");
    c = xnew0(struct build_conn);
    *c = (struct build_conn){.task = s->task, .lines = JSON_LINES_INIT(ends[0])};
    /* A process that waits for an answer sends nothing: its connection is readable when it ends. */
    c->task.cancel_fd = ends[0];
    r = pthread_create(&c->thread, NULL, build_serve_work, c);
    if (r) {
        fd_close(ends[0]);
        fd_close(ends[1]);
        free(c);
        return err_sys(err, r, "start a thread");
    }
    *place = c;
    *ret = ends[1];
    return 0;
}

int build_serve_end(struct build_serve *s, struct err *err)
{
    int r = 0;

    if (!s)
        return 0;
    for (size_t i = 0; i < AT_ONCE_MAX; i++)
        if (s->conns[i])
            shutdown(s->conns[i]->lines.fd, SHUT_RDWR);
    for (size_t i = 0; i < AT_ONCE_MAX; i++)
        if (s->conns[i]) {
            pthread_join(s->conns[i]->thread, NULL);
            build_serve_drop(s, i);
        }
    if (s->err.code != ERR_NONE)
        r = err_move(err, &s->err);
    free(s);
    return r;
}
