/*
 * Measuring a sandbox walks its files, so it is done when the sandbox may have reached its budget,
 * and now and then while a command runs. statvfs() takes a microsecond and counts reserved blocks
 * at once: what the whole file system has lost since a sandbox was measured is what that sandbox
 * has gained at most, unless others have deleted as much in the same moment. The measurements by
 * time are for those cases.
 *
 * A writer is caught when it is over the budget by what it writes in a tenth of a second and during
 * the measurement. fallocate() can take a whole disk in that time: only a quota or an image holds
 * against it.
 */
#include "daemon/core/sandbox/disk-budget.h"

#include <sys/statvfs.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

/* A step is the least growth that is worth a measurement. Measuring takes at most a hundredth of
 * the time. Who is over a lowered budget may still write one part in ROOM: else the next line of a
 * log would end the sandbox. */
enum { STEPS = 256, ROOM = 16, BYTES_PER_FILE = 16384, PENDING_MAX = 2, REST = 100 };

#define HURRY (USEC_PER_SEC / 10)
#define INTERVAL (30 * USEC_PER_SEC)

static struct disk_usage disk_budget_of(const struct manager *m)
{
    return (struct disk_usage){m->config.disk_budget, m->config.disk_budget / BYTES_PER_FILE};
}

static bool disk_budget_exceeds(const struct disk_usage *a, const struct disk_usage *b)
{
    return a->bytes > b->bytes || a->files > b->files;
}

bool disk_budget_is_watched(const struct sandbox *sb)
{
    return sb->m->config.disk_budget && !sb->spec.disk && sb->conn && !sb->disk_held;
}

void disk_budget_mark_new(struct sandbox *sb)
{
    sb->disk = (struct disk_budget_mark){
        .taken = sb->m->budget.taken, .allowed = disk_budget_of(sb->m), .known = true};
}

/* A sandbox that was too deep to measure has some time to delete its folders. */
void disk_budget_begin(struct sandbox *sb)
{
    if (!sb->disk.known)
        sb->disk.taken = sb->m->budget.taken;
    if (sb->disk.known || sb->disk.deep)
        sb->disk.due = time_mono() + INTERVAL;
}

/* ---- one sandbox ---- */

/* Whether it may have more than it is allowed, or its time has come. */
static bool disk_budget_is_due(const struct sandbox *sb)
{
    const struct disk_budget_mark *mark = &sb->disk;
    const struct disk_usage *taken = &sb->m->budget.taken, budget = disk_budget_of(sb->m);
    struct disk_usage grown = {taken->bytes - mark->taken.bytes, taken->files - mark->taken.files};
    struct disk_usage step = {budget.bytes / STEPS, budget.files / STEPS};
    struct disk_usage most = {mark->had.bytes + grown.bytes, mark->had.files + grown.files};

    if (sb->state != SANDBOX_RUNNING || !disk_budget_is_watched(sb) || mark->measuring)
        return false;
    if (sb->n_execs && time_mono() >= mark->due)
        return true;
    return disk_budget_exceeds(&grown, &step) &&
           (!mark->known || disk_budget_exceeds(&most, &mark->allowed));
}

static uint64_t disk_budget_allow(uint64_t budget, uint64_t has, bool known, uint64_t allowed)
{
    uint64_t most = has + budget / ROOM;

    return MAX(budget, known ? MIN(most, allowed) : most);
}

/* Takes a measurement that began at `taken`. What was deleted cannot be written again if it was
 * over the budget. */
static void disk_budget_note(struct sandbox *sb, const struct disk_usage *has,
                             const struct disk_usage *taken)
{
    struct disk_budget_mark *mark = &sb->disk;
    struct disk_usage budget = disk_budget_of(sb->m), *allowed = &mark->allowed;

    allowed->bytes = disk_budget_allow(budget.bytes, has->bytes, mark->known, allowed->bytes);
    allowed->files = disk_budget_allow(budget.files, has->files, mark->known, allowed->files);
    mark->had = *has;
    mark->taken = *taken;
    mark->known = true;
}

void disk_budget_settle(struct sandbox *sb, const struct err *err, const struct disk_usage *has)
{
    sb->disk.known = false;
    disk_budget_note(sb, has, &sb->m->budget.taken);
    sb->disk.deep = err && err->code == ERR_LIMIT;
}

static char *disk_budget_why(const struct sandbox *sb, const struct disk_usage *has, bool deep)
{
    struct disk_usage budget = disk_budget_of(sb->m);
    char used[FORMAT_MAX], limit[FORMAT_MAX];

    format_size(budget.bytes, limit);
    if (deep)
        return xasprintf("its folders are too deep to measure, and may hold more than its disk "
                         "budget of %s",
                         limit);
    if (has->bytes > sb->disk.allowed.bytes)
        return xasprintf("it used %s on the disk, its budget is %s", format_size(has->bytes, used),
                         limit);
    return xasprintf("it had %llu files, its budget is %llu", (unsigned long long)has->files,
                     (unsigned long long)budget.files);
}

/* Without grace: a second of grace is a second more to write. */
static void disk_budget_stop(struct sandbox *sb, const struct disk_usage *has, bool deep)
{
    struct op *op = op_push(sb, &op_stop);

    op->over_budget = true;
    op->why = disk_budget_why(sb, has, deep);
    manager_warn(sb->m, "sandbox %s: stopping: %s (disk.budget)", sb->name, op->why);
}

struct disk_budget_job {
    struct manager *m;
    char name[SANDBOX_NAME_SIZE], id[SANDBOX_ID_LEN + 1];
    struct disk_usage taken; /* when the measurement began */
    uint64_t began;
};

/* A tree that takes too long counts with the part that was seen. No real tree is so deep that it
 * cannot be measured. */
static void disk_budget_take(struct sandbox *sb, const struct disk_budget_job *job,
                             const struct disk_usage *has, bool deep)
{
    uint64_t now = time_mono();

    disk_budget_note(sb, has, &job->taken);
    sb->disk.due = now + MAX(INTERVAL, REST * (now - job->began));
    if (sb->state == SANDBOX_RUNNING && (deep || disk_budget_exceeds(has, &sb->disk.allowed)))
        disk_budget_stop(sb, has, deep);
}

static void disk_budget_measured(void *arg, const struct err *err, const struct engine_usage *usage)
{
    struct disk_budget_job *job = arg;
    struct manager *m = job->m;
    struct sandbox *sb = map_get(&m->sandboxes, job->name);

    m->background_calls--;
    m->budget.pending--;
    if (sb && STREQ(sb->id, job->id)) {
        sb->disk.measuring = false;
        if (!m->closing && disk_budget_is_watched(sb))
            disk_budget_take(sb, job, &usage->files, err && err->code == ERR_LIMIT);
    }
    free(job);
}

static void disk_budget_measure(struct sandbox *sb)
{
    struct disk_budget_job *job = xnew0(struct disk_budget_job);
    struct manager *m = sb->m;

    job->m = m;
    job->taken = m->budget.taken;
    job->began = time_mono();
    memcpy(job->name, sb->name, sizeof(job->name));
    memcpy(job->id, sb->id, sizeof(job->id));
    sb->disk.measuring = true;
    m->background_calls++;
    m->budget.pending++;
    engine_usage(sb->engine, sb->id, disk_budget_measured, job);
}

/* ---- all of them ---- */

static uint64_t disk_budget_decrease(uint64_t *before, uint64_t now)
{
    uint64_t less = *before > now ? *before - now : 0;

    *before = now;
    return less;
}

/* *ret: what the file system has lost since the last look. */
static bool disk_budget_look(struct manager *m, struct disk_usage *ret)
{
    struct disk_budget_watch *w = &m->budget;
    struct statvfs fs;

    if (!m->config.disk_budget || !m->config.state_dir || statvfs(m->config.state_dir, &fs) < 0)
        return false;
    ret->bytes = disk_budget_decrease(&w->free.bytes, (uint64_t)fs.f_bfree * fs.f_frsize);
    ret->files = disk_budget_decrease(&w->free.files, fs.f_ffree);
    w->taken.bytes += ret->bytes;
    w->taken.files += ret->files;
    return true;
}

static void disk_budget_hurry(void *arg)
{
    disk_budget_tick(arg);
}

void disk_budget_tick(struct manager *m)
{
    struct disk_budget_watch *w = &m->budget;
    struct disk_usage less, budget = disk_budget_of(m);
    struct sandbox *sb = NULL;

    if (m->closing || !disk_budget_look(m, &less))
        return;
    for (size_t i = 0; w->pending < PENDING_MAX && manager_next(m, &i, &sb);)
        if (disk_budget_is_due(sb))
            disk_budget_measure(sb);
    if (less.bytes < budget.bytes / STEPS && less.files < budget.files / STEPS)
        return;
    if (!w->hurry)
        w->hurry = loop_timer_new(m->loop, disk_budget_hurry, m);
    loop_timer_set(w->hurry, HURRY, false);
}

void disk_budget_close(struct manager *m)
{
    loop_timer_free(TAKE_PTR(m->budget.hurry));
}
