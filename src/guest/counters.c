/*
 * Engines mount the container's own cgroup at /sys/fs/cgroup, read-only (v1: one folder per
 * controller). If an engine shows the whole tree instead, /proc/self/cgroup has our path in it. The
 * root of a v2 tree lacks these files; with v1 the path shows whether we see the whole tree.
 */
#include "guest/counters.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/os/cgroup-files.h"
#include "proto/guest.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

enum { CGROUP_TEXT_MAX = 16 << 10 };
#define V1_UNLIMITED (UINT64_C(1) << 62) /* "no limit" is the largest page-aligned number */

static int counters_open_folder(const char *path)
{
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Our path in the hierarchy of `controller` ("" is v2), from lines "id:controllers:path". */
static bool counters_find_place(char *text, const char *controller, char *ret, size_t size)
{
    char *line;

    while ((line = strsep(&text, "\n"))) {
        char *id = strsep(&line, ":"), *names = strsep(&line, ":"), *name;
        bool found = id && names && line && !*names && !*controller;

        while (!found && names && line && (name = strsep(&names, ",")))
            found = *name && STREQ(name, controller);
        if (found)
            return (size_t)snprintf(ret, size, "%s", line) < size;
    }
    return false;
}

/* The folder of that path below `mount`, or -1. */
static int counters_open_place(const char *mount, const char *controller)
{
    _cleanup_free_ char *text = NULL;
    char place[PATH_MAX], path[PATH_MAX];

    if (file_read(AT_FDCWD, "/proc/self/cgroup", CGROUP_TEXT_MAX, &text, NULL, NULL) < 0 ||
        !counters_find_place(text, controller, place, sizeof(place)) || strstr(place, "/../") ||
        (size_t)snprintf(path, sizeof(path), "%s%s", mount, place) >= sizeof(path))
        return -1;
    return counters_open_folder(path);
}

static uint64_t counters_find(int dir, const char *file, const char *key)
{
    uint64_t v;

    return cgroup_find(dir, file, key, &v) ? v : GUEST_UNKNOWN;
}

static bool counters_read_v2(int dir, struct guest_counters *c)
{
    if (faccessat(dir, "memory.events", R_OK, 0) < 0 && faccessat(dir, "pids.events", R_OK, 0) < 0)
        return false;
    c->memory_peak = counters_find(dir, "memory.peak", NULL);
    c->memory_limit = counters_find(dir, "memory.max", NULL);
    c->oom_kills = counters_find(dir, "memory.events", "oom_kill");
    c->pids_denied = counters_find(dir, "pids.events", "max");
    return true;
}

static int counters_open_v1(const char *controller)
{
    char mount[64];
    int fd;

    snprintf(mount, sizeof(mount), CGROUP_ROOT "/%s", controller);
    fd = counters_open_place(mount, controller);
    return fd >= 0 ? fd : counters_open_folder(mount);
}

static void counters_read_v1(struct guest_counters *c)
{
    _cleanup_close_ int memory = counters_open_v1("memory"), pids = counters_open_v1("pids");

    c->memory_peak = counters_find(memory, "memory.max_usage_in_bytes", NULL);
    c->memory_limit = counters_find(memory, "memory.limit_in_bytes", NULL);
    c->oom_kills = counters_find(memory, "memory.oom_control", "oom_kill");
    c->pids_denied = counters_find(pids, "pids.events", "max");
    if (c->memory_limit >= V1_UNLIMITED)
        c->memory_limit = GUEST_UNKNOWN;
}

void counters_read(struct guest_counters *ret)
{
    _cleanup_close_ int root = counters_open_folder(CGROUP_ROOT), place = -1;

    if (root >= 0 && counters_read_v2(root, ret))
        return;
    place = counters_open_place(CGROUP_ROOT, "");
    if (place < 0 || !counters_read_v2(place, ret))
        counters_read_v1(ret);
}
