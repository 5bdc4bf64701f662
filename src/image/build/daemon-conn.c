#include "image/build/daemon-conn.h"

#include "lib/base/cleanup.h"

void daemon_conn_set_id(struct daemon_conn *c, unsigned *step, json_t *doc)
{
    if (json_object_get(doc, "step"))
        *step = ++c->step;
    json_object_set_new(doc, "id", json_integer(*step));
}

void daemon_conn_send_event(struct daemon_conn *c, json_t *event)
{
    unsigned step = c->step;

    daemon_conn_set_id(c, &step, event);
    json_lines_write_or_exit(&c->lines, event);
}

static int daemon_conn_ask(struct daemon_conn *c, const char *what, json_t *doc, json_t **ret,
                           struct err *err)
{
    _cleanup_json_ json_t *answer = NULL;
    int r;

    json_lines_write_or_exit(&c->lines, json_pack("{s:o, s:i}", what, doc, "id", (int)c->step));
    r = json_lines_next(&c->lines, &answer, err);
    if (r < 0)
        return r;
    if (json_object_get(answer, "error"))
        return json_to_err(answer, err);
    if (ret)
        *ret = TAKE_PTR(answer);
    return 0;
}

int daemon_conn_run(struct daemon_conn *c, json_t *run, struct err *err)
{
    return daemon_conn_ask(c, "run", run, NULL, err);
}

int daemon_conn_pull(struct daemon_conn *c, json_t *pull, struct err *err)
{
    return daemon_conn_ask(c, "pull", pull, NULL, err);
}

int daemon_conn_fetch(struct daemon_conn *c, json_t *fetch, json_t **ret, struct err *err)
{
    return daemon_conn_ask(c, "fetch", fetch, ret, err);
}
