/*
 * The view of the machine that a sandbox gets: its own limits instead of the host's. Programs size
 * their heaps and thread pools by /proc/meminfo, /proc/cpuinfo and the affinity mask; with the
 * host's figures they would run into their limit. setup-proc-view.c binds files with this text over
 * the real ones, and proc-view-update.c refreshes the memory figures while an exec runs.
 */
#pragma once

#include <sched.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum { PROC_VIEW_FILE_MAX = 256 << 10 };

/* `used` counts against the limit; `cache` is the part of `used` that the kernel can reclaim. Every
 * text has the same length, so that a later one can be written over an earlier one at any time. */
int proc_view_meminfo(struct buf *b, uint64_t limit, uint64_t used, uint64_t cache) _must_check_;

/* MemTotal under a limit: the limit, or 0 if the machine has no more memory than that. */
uint64_t proc_view_memory(uint64_t limit);

/* The host's text, cut to its first `cpus` processors. */
int proc_view_cpuinfo(struct buf *b, const char *host, unsigned cpus) _must_check_;

/* "0-1\n" for 2. */
int proc_view_cpu_list(struct buf *b, unsigned cpus) _must_check_;

/* CPUs that a limit of `milli` thousandths may use: rounded up, at most those of `have`. */
unsigned proc_view_cpu_count(uint32_t milli, const cpu_set_t *have);

/* `count` CPUs of `have`. `salt` gives each sandbox another first CPU, so that sandboxes do not all
 * use CPU 0. */
void proc_view_affinity(const cpu_set_t *have, unsigned count, uint32_t salt, cpu_set_t *ret);
