#include "daemon/core/session/session.h"

#include <signal.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/loop/loop.h"

int session_check_free(const struct sandbox *sb, struct err *err)
{
    for (const struct exec *x = sb->execs; x; x = x->next) {
        if (!x->req.session)
            continue;
        err_set(err, ERR_CONFLICT, "session '%s' is active in sandbox '%s'", x->id, sb->name);
        return err_hint(err,
                        "Follow it with 'ripcord session %s --resume %s', cancel it with 'ripcord "
                        "sessions %s %s --cancel', or run both with --concurrent.",
                        sb->name, x->id, sb->name, x->id);
    }
    return 0;
}

static void session_take_id(void *arg, const struct store_exec *row)
{
    snprintf(arg, EXEC_ID_LEN + 1, "%s", row->id);
}

int session_get_json(struct manager *m, struct sandbox *sb, const char *id, json_t **ret,
                     struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    char last[EXEC_ID_LEN + 1] = "";
    int r;

    if (STREQ(id, "last")) {
        r = store_exec_last_session(m->store, sb->id, session_take_id, last, err);
        if (r < 0)
            return err_wrap(err, "sandbox '%s'", sb->name);
        id = last;
    }
    r = exec_get_json(m, sb, id, &doc, err);
    if (r < 0)
        return r;
    if (!json_is_true(json_object_get(doc, "session")))
        return err_set(err, ERR_NOT_FOUND, "exec '%s' of sandbox '%s' is not a session", id,
                       sb->name);
    *ret = TAKE_PTR(doc);
    return 0;
}

static void session_grace_over(void *arg)
{
    exec_kill(arg, NULL, NULL, NULL);
}

int session_cancel(struct exec *x, uint64_t grace, exec_result_fn done, void *arg, struct err *err)
{
    int r;

    if (!grace)
        return exec_kill(x, done, arg, err);
    r = exec_signal(x, SIGTERM, done, arg, err);
    if (r < 0)
        return r;
    if (!x->grace)
        x->grace = loop_timer_new(x->m->loop, session_grace_over, x);
    loop_timer_set(x->grace, grace, false);
    return 0;
}
