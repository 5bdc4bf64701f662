/*
 * Ranges of 65,536 host ids for sandboxes: 0x70000000 + n * 65536, leased per start so that no two
 * running sandboxes of one machine share an id, whatever root or daemon they belong to.
 *
 * A lease is a byte-range lock (open file description) on byte n of one machine-wide file. The
 * descriptor is inherited by the shim: the kernel gives the range back when the last process that
 * holds it has ended. So no crash leaves anything to clean up, and a new daemon needs no record of
 * the leases. A daemon that may only read the file makes do with read locks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    IDS_FIRST = 0x70000000,
    IDS_COUNT = 65536,
    IDS_LEASES = 4095, /* up to 0x7fff0000: below 2^31, where some programs stop counting */
};

#define IDS_FILE "/run/ripcord-ids"

struct ids {
    int dirfd;     /* folder of the file */
    char *name;    /* of the file, in dirfd */
    uint32_t next; /* where the next search begins */
    /* Bit n: range n overlaps a range of /etc/subuid or /etc/subgid and is never leased. */
    uint8_t taken[(IDS_LEASES + 7) / 8];
};

/* path: IDS_FILE, or another in tests; subid_files: NULL-terminated list of /etc/subuid and the
 * like. */
int ids_init(struct ids *ids, const char *path, const char *const *subid_files, struct err *err);
void ids_done(struct ids *ids);

/* *ret_fd holds the lease as long as it, or a copy in any process, is open. ERR_LIMIT: all ranges
 * are taken. One thread at a time. */
int ids_lease(struct ids *ids, uint32_t *ret_base, int *ret_fd, struct err *err);
