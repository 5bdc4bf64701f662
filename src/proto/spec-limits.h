/*
 * The ranges that the fields of a sandbox or command may have. The daemon enforces them. The CLI
 * checks the same ranges first, so that its error names the option.
 */
#pragma once

#include <stdint.h>

#define SPEC_MEMORY_MIN (UINT64_C(6) << 20)
#define SPEC_DISK_MIN (UINT64_C(16) << 20)
#define SPEC_TMPFS_MIN (UINT64_C(64) << 10)
#define SPEC_BYTES_MAX (UINT64_C(1) << 50)

/* How long a command may run, or be silent. */
#define SPEC_TIMEOUT_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000)

/* How much of each stream an answer holds (`"output":"inline"`). */
#define SPEC_OUTPUT_DEFAULT (UINT64_C(1) << 20)
#define SPEC_OUTPUT_MAX (UINT64_C(8) << 20)

/* How long a lease may be: in nanoseconds it fits 64 bits. */
#define SPEC_LEASE_MAX_MS (UINT64_MAX / 1000 / 1000)

enum {
    SPEC_CPUS_MIN_MILLI = 10,
    SPEC_CPUS_MAX_MILLI = 1024 * 1000,
    SPEC_PIDS_MIN = 2,
    SPEC_PIDS_MAX = 4194304, /* PID_MAX_LIMIT of a 64-bit kernel */
    SPEC_NOFILE_MIN = 16,
    SPEC_NOFILE_MAX = 1048576, /* fs.nr_open, unless the host changed it */
    SPEC_TERMINAL_MAX = 65535, /* rows, and columns: the kernel has 16 bits for each */
    SPEC_PORT_MIN = 1024,      /* below is for the machine's own services */
    SPEC_PORT_MAX = 65535,
    SPEC_PORTS_MAX = 32,
    SPEC_STOP_GRACE_MAX_MS = 600 * 1000,
    SPEC_CANCEL_GRACE_MAX_MS = 3600 * 1000,
};
