#include "supervisor/shim/owner.h"

#include <errno.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/guard.h"
#include "supervisor/shim/shim.h"

bool owner_is_other(const struct shim *s)
{
    return s->plan.id_base && GUARD("own namespace");
}

/* The securebits keep our capabilities, which the kernel otherwise drops from a process that leaves
 * uid 0. Raw calls: the process has one thread, and libc's versions would look for others. */
static int owner_begin(uid_t uid)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, -1, uid, -1) < 0)
        return -errno;
    syscall(SYS_setfsuid, 0);
    return 0;
}

static int owner_end(void)
{
    if (syscall(SYS_setresuid, -1, 0, -1) < 0 || prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0)
        return -errno;
    return 0;
}

int owner_act(const struct shim *s, bool on)
{
    if (!owner_is_other(s))
        return 0;
    return on ? owner_begin(s->plan.id_base) : owner_end();
}
