/*
 * What a client asks of an exec, and what it is shown of it.
 */
#include <stdlib.h>

#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { EXEC_LIST_MAX = 1000 };

struct exec_call_result {
    exec_result_fn done;
    void *arg;
};

static void exec_calls_result_cb(void *arg, const struct err *err, int fd)
{
    struct exec_call_result *r = arg;

    fd_close(fd);
    if (r->done)
        r->done(r->arg, err);
    free(r);
}

static struct exec_call_result *exec_calls_result_new(exec_result_fn done, void *arg)
{
    struct exec_call_result *r = xnew0(struct exec_call_result);

    r->done = done;
    r->arg = arg;
    return r;
}

static int exec_calls_check_reachable(const struct exec *x, struct err *err)
{
    if (x->state == EXEC_ENDED)
        return err_set(err, ERR_CONFLICT, "exec '%s' has ended", x->id);
    if (!x->sb || !x->sb->conn || !exec_is_sent(x))
        return err_set(err, ERR_CONFLICT, "exec '%s' has not started yet", x->id);
    return 0;
}

int exec_signal(struct exec *x, int sig, exec_result_fn done, void *arg, struct err *err)
{
    int r = exec_calls_check_reachable(x, err);

    if (r < 0)
        return r;
    supervisor_conn_signal(x->sb->conn, x->id, sig, exec_calls_result_cb,
                           exec_calls_result_new(done, arg));
    return 0;
}

int exec_kill(struct exec *x, exec_result_fn done, void *arg, struct err *err)
{
    int r;

    if (!exec_is_sent(x))
        x->cancelled = true; /* not sent yet: it will not be */
    r = exec_calls_check_reachable(x, err);
    if (r < 0)
        return r;
    supervisor_conn_kill(x->sb->conn, x->id, END_KILLED, exec_calls_result_cb,
                         exec_calls_result_new(done, arg));
    return 0;
}

void exec_resize(struct exec *x, uint16_t rows, uint16_t cols)
{
    if (exec_calls_check_reachable(x, NULL) >= 0)
        supervisor_conn_resize(x->sb->conn, x->id, rows, cols);
}

void exec_stdin_close(struct exec *x)
{
    if (x->stdin_fd < 0 || x->req.tty) {
        if (exec_calls_check_reachable(x, NULL) >= 0)
            supervisor_conn_stdin_close(x->sb->conn, x->id);
        return;
    }
    x->stdin_fd = fd_close(x->stdin_fd);
}

/* ---- documents ---- */

static void exec_calls_put_time(json_t *o, const char *key, uint64_t wall)
{
    char tmp[TIME_FORMAT_MAX];

    json_object_set_new(o, key, wall ? json_string(time_format(wall, tmp)) : json_null());
}

json_t *exec_to_json(const struct exec *x)
{
    json_t *o = json_object(), *argv = json_array();

    for (char **p = x->req.argv; p && *p; p++)
        json_array_append_new(argv, json_string(*p));
    json_object_set_new(o, "id", json_string(x->id));
    json_object_set_new(o, "sandbox", json_string(x->sandbox_name));
    json_object_set_new(o, "argv", argv);
    json_object_set_new(o, "state", json_string(exec_state_name(x->state)));
    exec_calls_put_time(o, "started_at", x->started_at);
    exec_calls_put_time(o, "ended_at", x->ended_at);
    json_object_set_new(o, "detached", json_boolean(x->detached));
    json_object_set_new(o, "tty", json_boolean(x->req.tty));
    json_object_set_new(o, "session", json_boolean(x->req.session));
    json_object_set_new(o, "end",
                        x->state == EXEC_ENDED ? end_record_to_json(&x->end) : json_null());
    json_object_set_new(o, "journal", json_string("kept"));
    return o;
}

static json_t *exec_calls_parse_or_null(const char *text)
{
    json_t *j = NULL;

    if (!text || json_parse("stored exec", text, strlen(text), &j, NULL) < 0)
        return json_null();
    return j;
}

static json_t *exec_calls_row_to_json(const struct sandbox *sb, const struct store_exec *row)
{
    _cleanup_json_ json_t *options = exec_calls_parse_or_null(row->options);
    json_t *o = json_object();

    json_object_set_new(o, "id", json_string(row->id));
    json_object_set_new(o, "sandbox", json_string(sb->name));
    json_object_set_new(o, "argv", exec_calls_parse_or_null(row->argv));
    json_object_set_new(o, "state", json_string(row->state));
    exec_calls_put_time(o, "started_at", row->started_at);
    exec_calls_put_time(o, "ended_at", row->ended_at);
    json_object_set_new(o, "detached",
                        json_boolean(json_is_true(json_object_get(options, "detached"))));
    json_object_set_new(o, "tty", json_boolean(json_is_true(json_object_get(options, "tty"))));
    json_object_set_new(o, "session",
                        json_boolean(json_is_true(json_object_get(options, "session"))));
    json_object_set_new(o, "end", exec_calls_parse_or_null(row->end));
    json_object_set_new(o, "journal", json_string(row->journal_gone ? "gone" : "kept"));
    return o;
}

struct collect {
    struct sandbox *sb;
    json_t *list; /* or the one document */
    bool one;
};

static void exec_calls_collect_row(void *arg, const struct store_exec *row)
{
    struct collect *c = arg;
    const struct exec *live = exec_find_live(c->sb, row->id);
    json_t *o;

    if (!live && !row->end)
        live = exec_find_unsaved(c->sb->m, row->id);
    o = live ? exec_to_json(live) : exec_calls_row_to_json(c->sb, row);

    if (c->one)
        c->list = o;
    else
        json_array_append_new(c->list, o);
}

int exec_list_json(struct manager *m, struct sandbox *sb, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *list = json_array();
    struct collect c = {.sb = sb, .list = list};
    int r;

    r = store_exec_each(m->store, sb->id, EXEC_LIST_MAX, exec_calls_collect_row, &c, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(list);
    return 0;
}

/* Newest first, as exec_list_json() does. */
static void exec_calls_collect_live(struct sandbox *sb, json_t *list)
{
    for (const struct exec *x = sb->execs; x; x = x->next)
        json_array_append_new(list, exec_to_json(x));
}

int exec_list_all_json(struct manager *m, bool all, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *list = json_array();
    struct sandbox *sb = NULL;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        struct collect c = {.sb = sb, .list = list};
        size_t n = json_array_size(list);
        int r = 0;

        if (!all || sb->ephemeral)
            exec_calls_collect_live(sb, list);
        else if (n < EXEC_LIST_MAX)
            r = store_exec_each(m->store, sb->id, EXEC_LIST_MAX - (unsigned)n,
                                exec_calls_collect_row, &c, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(list);
    return 0;
}

int exec_totals_of(struct manager *m, const struct sandbox *sb, json_t **ret, struct err *err)
{
    return usage_totals_of(&m->tallies, sb->id, ret, err);
}

int exec_totals_all(struct manager *m, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *sandboxes = json_object();
    struct sandbox *sb = NULL;
    int r = usage_totals_all(&m->tallies, &doc, err);

    if (r < 0)
        return r;
    for (size_t i = 0; manager_next(m, &i, &sb);) {
        json_t *sum = NULL;

        if (sb->ephemeral)
            continue;
        r = exec_totals_of(m, sb, &sum, err);
        if (r < 0)
            return r;
        json_object_set_new(sandboxes, sb->name, sum);
    }
    json_object_set(doc, "sandboxes", sandboxes);
    *ret = TAKE_PTR(doc);
    return 0;
}

int exec_get_json(struct manager *m, struct sandbox *sb, const char *id, json_t **ret,
                  struct err *err)
{
    const struct exec *live = exec_find_live(sb, id);
    struct collect c = {.sb = sb, .one = true};
    int r;

    if (live) { /* also one that is not stored yet: its sandbox is starting */
        *ret = exec_to_json(live);
        return 0;
    }
    r = store_exec_get(m->store, sb->id, id, exec_calls_collect_row, &c, err);
    if (r < 0)
        return err_wrap(err, "sandbox '%s'", sb->name);
    *ret = c.list;
    return 0;
}
