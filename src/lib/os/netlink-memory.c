#include "lib/os/netlink-memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fd.h"

enum {
    TABLE_MAX = 1 << 20, /* some 10,000 sockets */
    QUEUE_FIELD = 4,
};

/* One line for each socket: address, protocol, port, groups, bytes in the receive queue, … */
static uint64_t netlink_memory_sum(char *table)
{
    uint64_t sum = 0;

    for (char *p = table, *line; (line = strsep(&p, "\n"));) {
        char *field = NULL, *rest = line;

        for (int i = 0; rest && i <= QUEUE_FIELD;) {
            field = strsep(&rest, " ");
            i += *field != '\0';
        }
        sum += field ? strtoull(field, NULL, 10) : 0;
    }
    return sum;
}

uint64_t netlink_memory(int pid)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *table = NULL;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/net/netlink", pid);
    if (file_read(AT_FDCWD, path, TABLE_MAX, &table, NULL, &err) >= 0)
        return netlink_memory_sum(table);
    return err.code == ERR_LIMIT ? UINT64_MAX / 2 : 0;
}
