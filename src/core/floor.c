/*
 * Asked at each request instead of from a timer: statvfs() costs a microsecond, and room that has
 * just been made counts at once.
 */
#include "core/floor.h"

#include <sys/statvfs.h>

#include "base/parse.h"
#include "core/manager-internal.h"

/* On a small disk the floor is a tenth of it; of the inodes a hundredth is kept free. */
enum { FLOOR_DIVISOR = 10, INODES_DIVISOR = 100 };

static int too_full(const char *what, const char *free, const char *floor, struct err *err)
{
    err_set(err, ERR_LIMIT, "the disk is nearly full: %s %s free, new work needs %s", free, what,
            floor);
    return err_hint(err, "Remove sandboxes or other files; the key 'disk.floor' of ripcord.yaml "
                         "sets what is kept free.");
}

static int check_space(const struct statvfs *fs, uint64_t floor, struct err *err)
{
    uint64_t free = (uint64_t)fs->f_bavail * fs->f_frsize;
    char have[FORMAT_MAX], need[FORMAT_MAX];

    floor = MIN(floor, (uint64_t)fs->f_blocks * fs->f_frsize / FLOOR_DIVISOR);
    if (free >= floor)
        return 0;
    return too_full("are", format_size(free, have), format_size(floor, need), err);
}

/* Some file systems do not count inodes: they tell 0. */
static int check_inodes(const struct statvfs *fs, struct err *err)
{
    uint64_t floor = (uint64_t)fs->f_files / INODES_DIVISOR;
    char have[FORMAT_MAX], need[FORMAT_MAX];

    if (fs->f_favail >= floor)
        return 0;
    snprintf(have, sizeof(have), "%llu", (unsigned long long)fs->f_favail);
    snprintf(need, sizeof(need), "%llu", (unsigned long long)floor);
    return too_full("inodes are", have, need, err);
}

int floor_check(const struct manager *m, struct err *err)
{
    struct statvfs fs;
    int r;

    /* When it cannot be asked, the work itself will show what is wrong. */
    if (!m->config.state_dir || !m->config.disk_floor || statvfs(m->config.state_dir, &fs) < 0)
        return 0;
    r = check_space(&fs, m->config.disk_floor, err);
    return r < 0 ? r : check_inodes(&fs, err);
}
