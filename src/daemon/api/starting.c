#include "daemon/api/starting.h"

#include <stdlib.h>

#include "daemon/api/exec-retry.h"
#include "daemon/core/exec/exec.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

struct starting {
    struct api_call *call;
    struct exec *exec;
    const char *key;
    struct exec_watch watch;
};

static void starting_on_event(void *arg, enum exec_event event)
{
    struct starting *s = arg;

    (void)event;
    exec_watch_remove(s->exec, &s->watch);
    if (s->exec->start_err.code)
        call_reply_err(s->call, &s->exec->start_err);
    else
        call_reply(s->call, 201, json_pack("{s:o}", s->key, exec_to_json(s->exec)));
    exec_unref(s->exec);
    free(s);
}

void starting_begin(struct api_call *c, struct exec_request *req, const char *key)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct exec *x;

    exec_retry_prepare(c, req);
    if (manager_exec(c->manager, c->params[0], req, &x, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    exec_retry_made(c, x);
    starting_follow(c, x, key);
}

void starting_follow(struct api_call *c, struct exec *x, const char *key)
{
    struct starting *s;

    if (x->state != EXEC_STARTING) {
        call_reply(c, 201, json_pack("{s:o}", key, exec_to_json(x)));
        exec_unref(x);
        return;
    }
    s = xnew0(struct starting);
    s->call = c;
    s->exec = x;
    s->key = key;
    s->watch.fn = starting_on_event;
    s->watch.arg = s;
    exec_watch_add(x, &s->watch);
}
