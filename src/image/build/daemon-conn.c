#include "image/build/daemon-conn.h"

#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

int daemon_conn_open(struct daemon_conn *c, struct err *err)
{
    size_t n = 1;
    int fd = -1, r;
    ssize_t len;
    char byte;

    daemon_conn_done(c);
    r = fd_send(c->control, "", 1, NULL, 0, 0);
    if (r < 0)
        return err_sys(err, -r, "ask the daemon for a connection");
    len = fd_recv(c->control, &byte, 1, &fd, &n, 0);
    if (len < 0)
        return err_sys(err, (int)-len, "receive a connection from the daemon");
    if (fd < 0)
        return err_set(err, ERR_ENGINE, "the daemon refused a connection to the build");
    c->lines = (struct json_lines)JSON_LINES_INIT(fd);
    return 0;
}

void daemon_conn_done(struct daemon_conn *c)
{
    json_lines_done(&c->lines);
}

void daemon_conn_send_event(struct daemon_conn *c, json_t *event)
{
    if (!json_lines_write(&c->lines, event))
        _exit(1);
}

static int daemon_conn_ask(struct daemon_conn *c, const char *what, json_t *doc, json_t **ret,
                           struct err *err)
{
    _cleanup_json_ json_t *answer = NULL;
    int r;

    daemon_conn_send_event(c, json_pack("{s:o}", what, doc));
    r = json_lines_next(&c->lines, &answer, err);
    if (r < 0)
        return r;
    if (r == 0)
        return err_set(err, ERR_ENGINE, "the daemon closed its connection to the build");
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

void daemon_conn_flush(struct daemon_conn *c)
{
    if (daemon_conn_ask(c, "flush", json_true(), NULL, NULL) < 0)
        _exit(1);
}
