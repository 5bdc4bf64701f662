/*
 * What a sandbox is told about the machine: its own limits, not the host's. Programs size their
 * heaps and thread pools by /proc/meminfo, /proc/cpuinfo and the affinity mask; with the host's
 * figures they run into their limit. The text goes into files that are bound over the real ones
 * (setup), and the memory figures are refreshed while an exec runs.
 */
#pragma once

#include <sched.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum { PROC_VIEW_FILE_MAX = 256 << 10 };

/* `used` is all that counts against the limit; `cache` is the part of it that the kernel gives back
 * when it is needed. Fixed width: a later text has the same length, so that it can be written over
 * the earlier one at any time. */
int proc_view_meminfo(struct buf *b, uint64_t limit, uint64_t used, uint64_t cache) _must_check_;

/* What MemTotal should say under a limit: the limit, or 0 when the machine has no more than that.
 */
uint64_t proc_view_memory(uint64_t limit);

/* The host's text, cut to its first `cpus` processors. */
int proc_view_cpuinfo(struct buf *b, const char *host, unsigned cpus) _must_check_;

/* "0-1\n" for 2. */
int proc_view_cpu_list(struct buf *b, unsigned cpus) _must_check_;

/* CPUs that a limit of `milli` thousandths may use: rounded up, at most those of `have`. */
unsigned proc_view_cpu_count(uint32_t milli, const cpu_set_t *have);

/* That many CPUs of `have`, beginning at a place that differs from sandbox to sandbox (`salt`), so
 * that they do not crowd on CPU 0. */
void proc_view_affinity(const cpu_set_t *have, unsigned count, uint32_t salt, cpu_set_t *ret);
