/*
 * One job at a time for the whole manager, with a few execs of one sandbox: first the files, then
 * the rows. If the daemon dies in between, a row says "kept" for a folder that is gone. Readers see
 * that as a gap, and the next daemon corrects the row.
 */
#include "daemon/core/exec/output-retention.h"

#include <stdlib.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { RETAIN_BATCH = 16, RETAIN_LOOKS = 8 /* store queries per tick */ };
#define RETAIN_AGAIN (60 * USEC_PER_SEC) /* after a failure */

struct retain_job {
    struct manager *m;
    char name[SANDBOX_NAME_SIZE], id[SANDBOX_ID_LEN + 1]; /* the sandbox may be removed meanwhile */
    char **execs;
    uint64_t bytes; /* on disk, of these execs */

    /* used while the execs are chosen: */
    uint64_t kept, now; /* now: wall clock */
    uint64_t next_at;   /* when the oldest remaining exec is due */
    uint64_t too_many;
    char last[EXEC_ID_LEN + 1];
    uint64_t last_bytes, last_due;
};

static void output_retention_job_free(struct retain_job *j)
{
    strv_free(j->execs);
    free(j);
}

static uint64_t output_retention_due_at(const struct manager *m, uint64_t ended_at)
{
    return m->config.journal_keep ? ended_at + m->config.journal_keep : UINT64_MAX;
}

static bool output_retention_is_over(const struct manager *m, uint64_t bytes)
{
    uint64_t budget = m->config.journal_sandbox_budget;

    return budget && bytes > budget;
}

/* The number of the newest exec beyond history_keep; 0: none. */
static uint64_t output_retention_too_many(const struct sandbox *sb)
{
    uint64_t keep = sb->m->config.history_keep;

    return keep && sb->next_seq > keep + 1 ? sb->next_seq - 1 - keep : 0;
}

uint64_t output_retention_record_bytes(const struct end_record *end)
{
    return end->stdout_bytes - MIN(end->stdout_bytes, end->stdout_dropped) + end->stderr_bytes -
           MIN(end->stderr_bytes, end->stderr_dropped);
}

uint64_t output_retention_bytes(const struct exec *x)
{
    return output_retention_record_bytes(&x->end);
}

void output_retention_load(struct sandbox *sb)
{
    store_exec_kept_bytes(sb->m->store, sb->id, &sb->journal_bytes, NULL);
    sb->retain_at = 0; /* unknown: the first query finds out */
}

/* ---- choosing execs ---- */

static void output_retention_take_last(struct retain_job *j)
{
    strv_add(&j->execs, j->last);
    j->bytes += j->last_bytes;
    j->last[0] = '\0';
}

/* Called for the oldest first. Each exec is chosen only when the next row shows that it is not
 * the newest. */
static void output_retention_choose(void *arg, const struct store_exec *row)
{
    struct retain_job *j = arg;
    uint64_t due = output_retention_due_at(j->m, row->ended_at);

    if (j->last[0])
        output_retention_take_last(j);
    if (j->next_at != UINT64_MAX)
        return; /* an exec that stays was found: all later ones stay as well */
    if (row->seq <= j->too_many)
        due = 0;
    if (due > j->now && !output_retention_is_over(j->m, j->kept - MIN(j->kept, j->bytes))) {
        j->next_at = MIN(due, UINT64_MAX - 1);
        return;
    }
    snprintf(j->last, sizeof(j->last), "%s", row->id);
    j->last_bytes = row->journal;
    j->last_due = due;
}

static struct retain_job *output_retention_job_new(struct sandbox *sb)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct retain_job *j = xnew0(struct retain_job);

    j->m = sb->m;
    j->kept = sb->journal_bytes;
    j->now = time_wall();
    j->too_many = output_retention_too_many(sb);
    j->next_at = UINT64_MAX;
    snprintf(j->name, sizeof(j->name), "%s", sb->name);
    snprintf(j->id, sizeof(j->id), "%s", sb->id);
    if (store_exec_each_kept(sb->m->store, sb->id, RETAIN_BATCH, output_retention_choose, j, &err) <
        0)
        manager_warn(sb->m, "sandbox %s: cannot read its execs: %s", sb->name, err.msg);
    if (j->last[0] && j->last_due > j->now)
        j->next_at = j->last_due; /* probably the newest: only its age counts */
    else if (j->last[0])
        output_retention_take_last(j);
    return j;
}

/* ---- removing output ---- */

static void output_retention_forgotten(void *arg, const struct err *err,
                                       struct engine_sandbox *info)
{
    struct retain_job *j = arg;
    struct manager *m = j->m;
    struct sandbox *sb = map_get(&m->sandboxes, j->name);

    (void)info;
    m->background_calls--;
    m->retaining = false;
    if (err)
        manager_warn(m, "sandbox %s: cannot remove old output, trying again later: %s", j->name,
                     err->msg);
    for (char **x = err ? NULL : j->execs; x && *x; x++)
        store_exec_journal_gone(m->store, *x, NULL);
    if (sb && STREQ(sb->id, j->id) && !err) {
        sb->journal_bytes -= MIN(sb->journal_bytes, j->bytes);
        store_exec_trim(m->store, sb->id, j->too_many, NULL);
        sb->retain_at = 0; /* there may be more */
    }
    output_retention_job_free(j);
}

static void output_retention_run(struct sandbox *sb)
{
    struct manager *m = sb->m;
    struct retain_job *j = output_retention_job_new(sb);

    if (!j->execs) {
        sb->retain_at = j->next_at;
        if (j->too_many)
            store_exec_trim(m->store, sb->id, j->too_many, NULL);
        output_retention_job_free(j);
        return;
    }
    sb->retain_at = j->now + RETAIN_AGAIN;
    m->retaining = true;
    m->background_calls++;
    engine_forget_execs(sb->engine, sb->id, j->execs, output_retention_forgotten, j);
}

void output_retention_ended(struct sandbox *sb, const struct exec *x)
{
    if (sb->ephemeral || !x->stored)
        return;
    sb->journal_bytes += output_retention_bytes(x);
    sb->retain_at = MIN(sb->retain_at, output_retention_due_at(sb->m, x->ended_at));
    if (!output_retention_is_over(sb->m, sb->journal_bytes) &&
        output_retention_too_many(sb) < sb->trim_seq + RETAIN_BATCH)
        return;
    sb->trim_seq = output_retention_too_many(sb);
    sb->retain_at = 0;
    if (!sb->m->retaining && !sb->m->closing)
        output_retention_run(sb);
}

void output_retention_tick(struct manager *m)
{
    uint64_t now = time_wall();
    struct sandbox *sb;
    int looks = 0;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        if (m->retaining || m->closing || looks >= RETAIN_LOOKS)
            return;
        if (sb->ephemeral || !sb->stored || now < sb->retain_at)
            continue;
        looks++;
        output_retention_run(sb);
    }
}
