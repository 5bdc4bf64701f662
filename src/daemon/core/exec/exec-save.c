#include "daemon/core/exec/exec-save.h"

#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/exec/output-retention.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/loop/loop.h"

#define SAVE_AFTER (50 * USEC_PER_MSEC)
#define SAVE_AGAIN USEC_PER_SEC

enum { ENDS_MAX = 1024 };

static void exec_save_plan(struct exec_save *s, uint64_t after)
{
    if (s->planned)
        return;
    s->planned = true;
    loop_timer_set(s->timer, after, false);
}

static void exec_save_on_timer(void *arg)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct manager *m = arg;

    m->saves.planned = false;
    if (exec_save_now(m, &err) < 0)
        log_debug("cannot save the ends of %u execs, trying again: %s", m->saves.n, err.msg);
}

void exec_save_open(struct manager *m)
{
    m->saves = (struct exec_save){.timer = loop_timer_new(m->loop, exec_save_on_timer, m)};
}

static void exec_save_forget(struct exec_save *s)
{
    while (s->ends) {
        struct exec *x = s->ends;

        s->ends = x->next;
        exec_unref(x);
    }
    s->n = 0;
}

void exec_save_close(struct manager *m)
{
    exec_save_now(m, NULL);
    exec_save_forget(&m->saves);
    loop_timer_free(TAKE_PTR(m->saves.timer));
}

static int exec_save_write_one(const struct exec *x, struct err *err)
{
    _cleanup_json_ json_t *o = end_record_to_json(&x->end);
    _cleanup_free_ char *text = json_to_text(o, false);

    return store_exec_end(x->m->store, x->id, exec_state_name(EXEC_ENDED), x->ended_at, text,
                          output_retention_bytes(x), err);
}

int exec_save_write(struct manager *m, struct err *err)
{
    for (const struct exec *x = m->saves.ends; x; x = x->next) {
        int r = exec_save_write_one(x, err);

        if (r < 0)
            return r;
    }
    return usage_totals_write(&m->usage_totals, err);
}

void exec_save_written(struct manager *m)
{
    exec_save_forget(&m->saves);
    usage_totals_written(&m->usage_totals);
    m->saves.failing = false;
}

int exec_save_now(struct manager *m, struct err *err)
{
    int r;

    if (!m->saves.ends && !usage_totals_is_pending(&m->usage_totals))
        return 0;
    r = store_begin(m->store, err);
    if (r >= 0)
        r = store_end(m->store, exec_save_write(m, err), err);
    m->saves.failing = r < 0;
    if (r >= 0)
        exec_save_written(m);
    else
        exec_save_plan(&m->saves, SAVE_AGAIN);
    return r;
}

static void exec_save_keep(struct exec *x)
{
    struct exec_save *s = &x->m->saves;

    if (s->n >= ENDS_MAX) {
        manager_warn(x->m, "the end of exec %s cannot be saved: %u others are waiting", x->id,
                     s->n);
        return;
    }
    x->next = s->ends;
    s->ends = exec_ref(x);
    s->n++;
}

void exec_save_end(struct exec *x, const struct sandbox *sb)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct manager *m = x->m;

    usage_totals_add(&m->usage_totals, sb, x);
    if (x->stored)
        exec_save_keep(x);
    if (m->saves.failing)
        return;
    if (sb->ephemeral || !x->stored)
        exec_save_plan(&m->saves, SAVE_AFTER);
    else if (exec_save_now(m, &err) < 0)
        manager_warn(m, "the end of exec %s cannot be saved, trying again: %s", x->id, err.msg);
}

struct exec *exec_save_find(struct manager *m, const char *id)
{
    for (struct exec *x = m->saves.ends; x; x = x->next)
        if (STREQ(x->id, id))
            return x;
    return NULL;
}
