/*
 * `guest reap`: kills processes that have lost their guest (proc-tree.h).
 */
#include <unistd.h>

#include "guest/guest-conn.h"
#include "guest/modes.h"
#include "guest/proc-tree.h"
#include "lib/base/parse.h"

enum { GUESTS_MAX = 4096 };

static int reap_read_guests(char **argv, pid_t *guests, size_t *n, struct err *err)
{
    uint32_t pid = 0;

    for (*n = 0; argv[*n]; ++*n) {
        if (*n == GUESTS_MAX)
            return err_set(err, ERR_LIMIT, "more than %d guests", GUESTS_MAX);
        if (parse_u32(argv[*n], 2, INT32_MAX, &pid, err) < 0)
            return err_wrap(err, "pid");
        guests[*n] = (pid_t)pid;
    }
    return 0;
}

int guest_reap(char **argv, struct err *err _unused_)
{
    static pid_t guests[GUESTS_MAX];
    struct guest_conn conn = GUEST_CONN_INIT;
    _cleanup_err_ struct err why = ERR_INIT;
    size_t n, killed = 0;
    int r;

    guest_conn_queued(&conn, guest_put_hello(&conn.out, (uint32_t)getpid()));
    r = reap_read_guests(argv, guests, &n, &why);
    if (r >= 0)
        r = proc_tree_kill_lost(guests, n, &killed, &why);
    guest_conn_queued(&conn,
                      r < 0 ? guest_put_failed(&conn.out, &why)
                            : guest_put_done(&conn.out, &(struct guest_done){.entries = killed}));
    guest_conn_flush(&conn);
    guest_conn_done(&conn);
    return 0;
}
