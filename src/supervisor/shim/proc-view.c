#include "supervisor/shim/proc-view.h"

#include <sys/sysinfo.h>

uint64_t proc_view_memory(uint64_t limit)
{
    struct sysinfo si;

    if (limit && sysinfo(&si) == 0 && limit >= (uint64_t)si.totalram * si.mem_unit)
        return 0;
    return limit;
}

int proc_view_meminfo(struct buf *b, uint64_t limit, uint64_t used, uint64_t cache)
{
    unsigned long long total = limit >> 10, free_kib = used < limit ? (limit - used) >> 10 : 0;
    unsigned long long cached = MIN(cache >> 10, total - free_kib);
    const struct {
        const char *name;
        unsigned long long kib;
    } lines[] = {
        {"MemTotal", total},
        {"MemFree", free_kib},
        {"MemAvailable", free_kib + cached},
        {"Buffers", 0},
        {"Cached", cached},
        {"SwapCached", 0},
        {"Active", total - free_kib - cached},
        {"Inactive", cached},
        {"SwapTotal", 0},
        {"SwapFree", 0},
        {"Dirty", 0},
        {"Shmem", 0},
        {"Slab", 0},
        {"SReclaimable", 0},
        {"SUnreclaim", 0},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(lines); i++)
        r = buf_appendf(b, "%s:%*llu kB\n", lines[i].name, (int)(26 - strlen(lines[i].name)),
                        lines[i].kib);
    return r;
}

int proc_view_cpuinfo(struct buf *b, const char *host, unsigned cpus)
{
    const char *end = host;

    /* Each processor is a paragraph; what follows the last one (arm64: Hardware, Revision) is left
     * out. */
    while (cpus-- && *end) {
        const char *blank = strstr(end, "\n\n");

        end = blank ? blank + 2 : end + strlen(end);
    }
    return buf_append(b, host, (size_t)(end - host));
}

int proc_view_cpu_list(struct buf *b, unsigned cpus)
{
    return cpus > 1 ? buf_appendf(b, "0-%u\n", cpus - 1) : buf_append_str(b, "0\n");
}

unsigned proc_view_cpu_count(uint32_t milli, const cpu_set_t *have)
{
    unsigned online = (unsigned)CPU_COUNT(have), wanted = (milli + 999) / 1000;

    return milli ? MAX(1U, MIN(wanted, online)) : online;
}

void proc_view_affinity(const cpu_set_t *have, unsigned count, uint32_t salt, cpu_set_t *ret)
{
    unsigned online = (unsigned)CPU_COUNT(have), skip = online ? salt % online : 0;

    CPU_ZERO(ret);
    /* Twice round: the second lap takes those that the first skipped. */
    for (unsigned i = 0; i < 2 * CPU_SETSIZE && count; i++) {
        unsigned cpu = i % CPU_SETSIZE;

        if (!CPU_ISSET(cpu, have) || CPU_ISSET(cpu, ret))
            continue;
        if (skip) {
            skip--;
            continue;
        }
        CPU_SET(cpu, ret);
        count--;
    }
}
