/*
 * The resource limits of a sandbox, as bits of a set. All programs use this one enum: a spec says
 * which limits the user asked for, a plan which of them must hold, and a supervisor which of them
 * this machine cannot enforce. The values are in messages between programs and do not change.
 */
#pragma once

enum limit_bit {
    LIMIT_MEMORY = 1 << 0,
    LIMIT_CPUS = 1 << 1,
    LIMIT_PIDS = 1 << 2,
    LIMIT_DISK = 1 << 3,
    LIMIT_NOFILE = 1 << 4,
    LIMIT_DISK_BUDGET = 1 << 5, /* only in what the API shows */
};
