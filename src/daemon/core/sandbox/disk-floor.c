/*
 * The check is made at each request, not from a timer: statvfs() takes a microsecond, and space
 * that was freed counts at once.
 *
 * The timer watches running sandboxes. Measuring a sandbox walks its files, on a worker of its
 * engine. This is done only while less than the floor is free, so that two measurements exist when
 * less than half of the floor is free. A sandbox that does not grow is never stopped: if something
 * else fills the disk, stopping sandboxes would not help. A writer that fills the whole disk
 * between two measurements is not caught; it gets ENOSPC like everybody else.
 */
#include "daemon/core/sandbox/disk-floor.h"

#include <sys/statvfs.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

/* On a small disk the floor is a tenth of its size. A hundredth of the inodes is kept free. */
enum { FLOOR_DIVISOR = 10, INODES_DIVISOR = 100, LOOKS_PER_MINUTE = 120, DESCRIPTORS_KEPT = 128 };

/* A file counts with so many bytes more: many empty files are a big tree too. */
enum { FILE_WEIGHT = 4096 };

#define LOOK_INTERVAL (USEC_PER_SEC / 2)
#define STOP_GRACE USEC_PER_SEC
#define USAGE_UNKNOWN UINT64_MAX

struct disk_floor_state {
    struct statvfs fs;
    uint64_t free, floor;
};

/* False when there is no floor, or when statvfs() fails: then the work itself will fail and say
 * why. */
static bool disk_floor_read(const struct manager *m, struct disk_floor_state *ret)
{
    struct disk_floor_state s;

    if (!m->config.state_dir || !m->config.disk_floor || statvfs(m->config.state_dir, &s.fs) < 0)
        return false;
    s.free = (uint64_t)s.fs.f_bavail * s.fs.f_frsize;
    s.floor = MIN(m->config.disk_floor, (uint64_t)s.fs.f_blocks * s.fs.f_frsize / FLOOR_DIVISOR);
    *ret = s;
    return true;
}

/* ---- new work ---- */

static int disk_floor_too_full(const char *what, const char *free, const char *floor,
                               struct err *err)
{
    err_set(err, ERR_LIMIT, "the disk is nearly full: %s%s are free, new work needs %s", free, what,
            floor);
    return err_hint(err, "Remove sandboxes or other files, or lower 'disk.floor' in "
                         "ripcord.yaml.");
}

/*
 * Keeps enough descriptors to finish the work that is running: a start or an exec needs a dozen for
 * a moment, several run at once, and clients need answers.
 */
static int disk_floor_check_descriptors(struct err *err)
{
    unsigned limit, left = fd_left(&limit);

    if (left >= MIN(DESCRIPTORS_KEPT, limit / 4))
        return 0;
    err_set(err, ERR_LIMIT,
            "the daemon has too few free file descriptors: %u of %u descriptors in use",
            limit - left, limit);
    return err_hint(err,
                    "Wait until some commands or clients end, or raise the daemon's limit with "
                    "LimitNOFILE= in its unit or 'ulimit -Hn' before it is started.");
}

int disk_floor_check(const struct manager *m, struct err *err)
{
    char have[FORMAT_MAX], need[FORMAT_MAX];
    struct disk_floor_state s;
    uint64_t inodes;
    int r = disk_floor_check_descriptors(err);

    if (r < 0)
        return r;
    if (!disk_floor_read(m, &s))
        return 0;
    if (s.free < s.floor)
        return disk_floor_too_full("", format_size(s.free, have), format_size(s.floor, need), err);
    inodes = (uint64_t)s.fs.f_files / INODES_DIVISOR; /* 0: the file system does not count them */
    if (s.fs.f_favail >= inodes)
        return 0;
    snprintf(have, sizeof(have), "%llu", (unsigned long long)s.fs.f_favail);
    snprintf(need, sizeof(need), "%llu", (unsigned long long)inodes);
    return disk_floor_too_full(" inodes", have, need, err);
}

/* ---- the sandbox that grows fastest ---- */

/*
 * Where inodes are the scarcer thing, `free` and `floor` count them with the weight that a file has
 * in the measurement of a sandbox. So the code below is the same for bytes and for inodes.
 */
static bool disk_floor_read_scarcer(const struct manager *m, struct disk_floor_state *ret)
{
    struct disk_floor_state s;
    uint64_t inodes;

    if (!disk_floor_read(m, &s))
        return false;
    inodes = (uint64_t)s.fs.f_files / INODES_DIVISOR;
    if (s.free >= s.floor && s.fs.f_favail < inodes) {
        s.free = (uint64_t)s.fs.f_favail * FILE_WEIGHT;
        s.floor = inodes * FILE_WEIGHT;
    }
    *ret = s;
    return true;
}

/* Its growth since the last measurement, or 0 when that would not fill the disk within a minute.
 * A sandbox that cannot be measured (too big, too deep) counts with the smallest growth. */
static uint64_t disk_floor_growth(const struct sandbox *sb, uint64_t free)
{
    uint64_t grown = 0;

    if (sb->state != SANDBOX_RUNNING || sb->ops || sb->usage_round != sb->m->floor.round ||
        !sb->usage_pair)
        return 0;
    if (sb->usage == USAGE_UNKNOWN || sb->usage_before == USAGE_UNKNOWN)
        return 1;
    if (sb->usage > sb->usage_before)
        grown = sb->usage - sb->usage_before;
    return grown >= free / LOOKS_PER_MINUTE ? grown : 0;
}

/* Stopping frees no space. So another one is stopped only when it alone could fill the rest. */
static void disk_floor_stop_grower(struct manager *m, uint64_t free)
{
    struct sandbox *sb = NULL, *worst = NULL;
    uint64_t most = 0;
    char text[FORMAT_MAX];
    struct op *op;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        uint64_t grown = disk_floor_growth(sb, free);

        if (grown > most) {
            most = grown;
            worst = sb;
        }
    }
    if (!worst)
        return;
    manager_warn(m, "the disk is nearly full (%s free): stopping sandbox '%s', which grows fastest",
                 format_size(free, text), worst->name);
    op = op_push(worst, &op_stop);
    op->grace = STOP_GRACE;
    op->why = xstrdup("the disk is nearly full and this sandbox grew fastest");
}

struct disk_measurement {
    struct manager *m;
    char name[SANDBOX_NAME_SIZE], id[SANDBOX_ID_LEN + 1];
};

static uint64_t disk_floor_weight(const struct engine_usage *u)
{
    return u->files.bytes + u->output.bytes + (u->files.files + u->output.files) * FILE_WEIGHT;
}

static void disk_floor_measured(void *arg, const struct err *err, const struct engine_usage *usage)
{
    struct disk_measurement *w = arg;
    struct manager *m = w->m;
    struct sandbox *sb = map_get(&m->sandboxes, w->name);
    struct disk_floor_state s;

    if (sb && STREQ(sb->id, w->id)) {
        sb->usage_pair = sb->usage_round + 1 == m->floor.round;
        sb->usage_before = sb->usage;
        sb->usage = err ? USAGE_UNKNOWN : disk_floor_weight(usage);
        sb->usage_round = m->floor.round;
    }
    free(w);
    m->background_calls--;
    if (--m->floor.pending == 0 && !m->closing && disk_floor_read_scarcer(m, &s) &&
        s.free < s.floor / 2)
        disk_floor_stop_grower(m, s.free);
}

void disk_floor_tick(struct manager *m)
{
    struct disk_floor_watch *f = &m->floor;
    struct sandbox *sb = NULL;
    struct disk_floor_state s;

    if (f->pending || m->closing || time_mono() < f->next)
        return;
    f->next = time_mono() + LOOK_INTERVAL;
    f->round += 1;
    if (!disk_floor_read_scarcer(m, &s) || s.free >= s.floor)
        return;
    for (size_t i = 0; manager_next(m, &i, &sb);) {
        struct disk_measurement *w;

        if (sb->state != SANDBOX_RUNNING)
            continue;
        w = xnew0(struct disk_measurement);
        w->m = m;
        memcpy(w->name, sb->name, sizeof(w->name));
        memcpy(w->id, sb->id, sizeof(w->id));
        m->background_calls++;
        f->pending++;
        engine_usage(sb->engine, sb->id, disk_floor_measured, w);
    }
}
