#include "image/build/daemon-conn.h"

#include "lib/base/cleanup.h"

void daemon_conn_set_id(struct daemon_conn *f, unsigned *step, json_t *doc)
{
    if (json_object_get(doc, "step"))
        *step = ++f->step;
    json_object_set_new(doc, "id", json_integer(*step));
}

void daemon_conn_send_event(struct daemon_conn *f, json_t *event)
{
    unsigned step = f->step;

    daemon_conn_set_id(f, &step, event);
    json_lines_write_or_exit(&f->lines, event);
}

static int daemon_conn_ask(struct daemon_conn *f, const char *what, json_t *doc, json_t **ret,
                           struct err *err)
{
    _cleanup_json_ json_t *answer = NULL;
    int r;

    json_lines_write_or_exit(&f->lines, json_pack("{s:o, s:i}", what, doc, "id", (int)f->step));
    r = json_lines_next(&f->lines, &answer, err);
    if (r >= 0 && json_object_get(answer, "error"))
        r = json_to_err(answer, err);
    if (r >= 0 && ret)
        *ret = TAKE_PTR(answer);
    return r;
}

int daemon_conn_run(struct daemon_conn *f, json_t *run, struct err *err)
{
    return daemon_conn_ask(f, "run", run, NULL, err);
}

int daemon_conn_pull(struct daemon_conn *f, json_t *pull, struct err *err)
{
    return daemon_conn_ask(f, "pull", pull, NULL, err);
}

int daemon_conn_fetch(struct daemon_conn *f, json_t *fetch, json_t **ret, struct err *err)
{
    return daemon_conn_ask(f, "fetch", fetch, ret, err);
}
