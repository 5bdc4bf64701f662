#include "lib/os/caps.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel may know more capabilities than our headers: try until it returns EINVAL. */
enum { CAPS_MAX = 64 };

int caps_bound(uint64_t keep, struct err *err)
{
    for (int cap = 0; cap < CAPS_MAX; cap++) {
        int has = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

        if (has < 0)
            break;
        if (!has || keep & CAPS_BIT(cap))
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return err_sys(err, errno, "drop capability %d from the bounding set", cap);
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(err, errno, "clear the ambient capabilities");
    return 0;
}

int caps_set(uint64_t keep, struct err *err)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)keep, .permitted = (uint32_t)keep},
        {.effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32)},
    };

    if (syscall(SYS_capset, &head, data) < 0)
        return err_sys(err, errno, "set capabilities");
    if (syscall(SYS_capget, &head, data) < 0)
        return err_sys(err, errno, "read back capabilities");
    for (int i = 0; i < 2; i++) {
        uint32_t want = (uint32_t)(keep >> (32 * i));

        if (data[i].effective != want || data[i].permitted != want || data[i].inheritable)
            return err_set(err, ERR_SYSTEM,
                           "capabilities differ from those that were set (word %d is %#x)", i,
                           data[i].permitted);
    }
    return 0;
}

bool caps_have(int cap)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    return syscall(SYS_capget, &head, data) == 0 &&
           data[CAP_TO_INDEX(cap)].effective & CAP_TO_MASK(cap);
}

int caps_become(uid_t uid, gid_t gid, struct err *err)
{
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0)
        return err_sys(err, errno, "change to group %u", gid);
    if (caps_bound(CAPS_NONE, NULL) < 0)
        return err_set(err, ERR_SYSTEM, "cannot drop capabilities");
    if (setresuid(uid, uid, uid) < 0)
        return err_sys(err, errno, "change to user %u", uid);
    return 0;
}
