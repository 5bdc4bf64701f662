#include "daemon/engine/native/probe.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "lib/base/fd.h"

enum { MAP_TEXT_MAX = 64 << 10 };

static bool probe_have_caps(uint64_t wanted)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};

    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    return ((data[0].effective | (uint64_t)data[1].effective << 32) & wanted) == wanted;
}

bool probe_map_covers(const char *map, uint64_t first, uint64_t count)
{
    unsigned long long inner, outer, n;
    int used;

    for (; sscanf(map, "%llu %llu %llu%n", &inner, &outer, &n, &used) == 3; map += used)
        if (inner <= first && first + count <= inner + n)
            return true;
    return false;
}

static bool probe_own_map_covers(const char *path, uint64_t first, uint64_t count)
{
    _cleanup_free_ char *text = NULL;

    return file_read(AT_FDCWD, path, MAP_TEXT_MAX, &text, NULL, NULL) >= 0 &&
           probe_map_covers(text, first, count);
}

bool probe_ids_exist(uint64_t first, uint64_t count)
{
    return probe_own_map_covers("/proc/self/uid_map", first, count) &&
           probe_own_map_covers("/proc/self/gid_map", first, count);
}

bool probe_id_exists(uint32_t id)
{
    return probe_ids_exist(id, 1);
}

bool probe_can_become(uint64_t caps, uint64_t first, uint64_t count)
{
    return probe_have_caps(caps) && probe_own_map_covers("/proc/self/uid_map", first, count) &&
           probe_own_map_covers("/proc/self/gid_map", first, count);
}

bool probe_id_ranges(uint64_t first, uint64_t count)
{
    const uint64_t wanted = UINT64_C(1) << CAP_SETUID | UINT64_C(1) << CAP_SETGID |
                            UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_CHOWN |
                            UINT64_C(1) << CAP_DAC_OVERRIDE | UINT64_C(1) << CAP_FOWNER |
                            UINT64_C(1) << CAP_SETPCAP | UINT64_C(1) << CAP_KILL;

    return probe_can_become(wanted, first, count);
}
