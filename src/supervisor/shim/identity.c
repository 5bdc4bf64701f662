#include "supervisor/shim/identity.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/guard.h"
#include "lib/os/caps.h"

/* Valid in the sandbox's user namespace only. */
#define ROOT_CAPS                                                                                  \
    (CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_DAC_OVERRIDE) | CAPS_BIT(CAP_FOWNER) |                     \
     CAPS_BIT(CAP_FSETID) | CAPS_BIT(CAP_SETUID) | CAPS_BIT(CAP_SETGID) | CAPS_BIT(CAP_SETPCAP) |  \
     CAPS_BIT(CAP_KILL) | CAPS_BIT(CAP_NET_BIND_SERVICE) | CAPS_BIT(CAP_SYS_CHROOT))

static int identity_set_ids(const struct plan *plan, const struct user *u, struct err *err)
{
    bool many = plan->id_base || plan->sub_uid;

    if (!many && (u->uid != PLAN_AGENT_ID || u->gid != PLAN_AGENT_ID)) {
        err_set(err, ERR_UNSUPPORTED,
                "user %u:%u does not exist in this sandbox (only id %d is mapped)", u->uid, u->gid,
                PLAN_AGENT_ID);
        return err_hint(
            err, "Other users need a range of ids. Run `ripcord doctor` to see how to get one.");
    }
    /* Raw calls: the process has one thread, and libc's versions would look for others. */
    if (many && syscall(SYS_setgroups, u->n_groups, u->groups) < 0)
        return err_sys(err, errno, "set the groups of user %u", u->uid);
    if (syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0)
        return err_sys(err, errno, "become group %u", u->gid);
    if (syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
        return err_sys(err, errno, "become user %u", u->uid);
    return 0;
}

int identity_bound(struct err *err)
{
    return GUARD("capabilities") ? caps_bound(ROOT_CAPS, err) : 0;
}

int identity_become(const struct plan *plan, const struct user *u, struct err *err)
{
    uint64_t keep = u->uid == 0 ? ROOT_CAPS : CAPS_NONE;
    int r;

    r = GUARD("capabilities") ? caps_bound(keep, err) : 0;
    if (r < 0)
        return r;
    r = identity_set_ids(plan, u, err);
    if (r < 0)
        return r;
    r = GUARD("capabilities") ? caps_set(keep, err) : 0;
    if (r < 0)
        return r;
    if (GUARD("no-new-privileges") && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "forbid new privileges");
    return 0;
}
