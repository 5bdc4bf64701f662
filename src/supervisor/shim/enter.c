#include "supervisor/shim/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/os/caps.h"
#include "lib/os/ns.h"
#include "supervisor/shim/owner.h"
#include "supervisor/shim/shim.h"

/* The user namespace comes first, because it gives the right to join the others. The mounts come
 * last, because the host's /proc disappears with them. The cgroup namespace is not in this list:
 * each helper makes its own, whose root is the exec's group. */
static const struct {
    const char *name;
    int flag;
} kinds[SHIM_NAMESPACES] = {
    {"user", CLONE_NEWUSER}, {"ipc", CLONE_NEWIPC}, {"uts", CLONE_NEWUTS},
    {"net", CLONE_NEWNET},   {"pid", CLONE_NEWPID}, {"mnt", CLONE_NEWNS},
};

enum { KIND_USER = 0, KIND_NETWORK = 3, KIND_PIDS = 4, KIND_MOUNTS = SHIM_NAMESPACES - 1 };

bool enter_by_descriptor(const struct shim *s)
{
    return !s->plan.id_base || !caps_have(CAP_SYS_PTRACE) || STREQ(s->cgroup.ops->name, "none");
}

static int enter_open_one(const struct shim *s, size_t kind, int *ret, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/%s", s->init_pid, kinds[kind].name);
    *ret = open(path, O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? err_sys(err, errno, "open '%s'", path) : 0;
}

static int enter_open_all(struct shim *s, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        int r = enter_open_one(s, i, &s->namespaces[i], err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* Pid 1 has the ids of a range by now, and only their owner may look at it. */
int enter_open(struct shim *s, struct err *err)
{
    int r, back;

    if (!s->by_descriptor)
        return 0;
    r = owner_act(s, true);
    if (r < 0)
        return err_sys(err, -r, "act as the owner of the sandbox");
    r = enter_open_all(s, err);
    back = owner_act(s, false);
    return r < 0 || back >= 0 ? r : err_sys(err, -back, "act as root again");
}

static int enter_open_either(const struct shim *s, size_t kind, int *ret, struct err *err)
{
    if (!s->by_descriptor)
        return enter_open_one(s, kind, ret, err);
    *ret = fcntl(s->namespaces[kind], F_DUPFD_CLOEXEC, 3);
    return *ret < 0 ? err_sys(err, errno, "duplicate a namespace's descriptor") : 0;
}

int enter_open_user(const struct shim *s, int *ret, struct err *err)
{
    return enter_open_either(s, KIND_USER, ret, err);
}

int enter_open_network(const struct shim *s, int *ret, struct err *err)
{
    return enter_open_either(s, KIND_NETWORK, ret, err);
}

int enter_pids(const struct shim *s, struct err *err)
{
    return ns_enter(s->by_descriptor ? s->namespaces[KIND_PIDS] : s->init.fd, CLONE_NEWPID, err);
}

void enter_close(struct shim *s)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        s->namespaces[i] = fd_close(s->namespaces[i]);
}

static int enter_unshare_cgroup(struct err *err)
{
    return unshare(CLONE_NEWCGROUP) < 0 ? err_sys(err, errno, "make a cgroup namespace") : 0;
}

static int enter_make_mark(int *ret, struct err *err)
{
    int r = enter_unshare_cgroup(err);

    if (r < 0)
        return r;
    *ret = open("/proc/self/ns/cgroup", O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? err_sys(err, errno, "open '/proc/self/ns/cgroup'") : 0;
}

int enter_sandbox(const struct shim *s, int namespaces, int *ret_mark, struct err *err)
{
    if (!s->by_descriptor) {
        int r = ns_enter(s->init.fd, namespaces & ~CLONE_NEWCGROUP, err);

        if (r < 0 || !(namespaces & CLONE_NEWCGROUP) || !GUARD("cgroup namespace"))
            return r;
        return enter_unshare_cgroup(err);
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        int r;

        if (namespaces & kinds[i].flag) {
            r = ns_enter(s->namespaces[i], kinds[i].flag, err);
            if (r < 0)
                return r;
        }
        if (i == 0 && ret_mark && namespaces & CLONE_NEWCGROUP) {
            r = enter_make_mark(ret_mark, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

int enter_ahead(const struct shim *s, int namespaces, int *ret_mounts, int *ret_mark,
                struct err *err)
{
    int r;

    if (s->by_descriptor) {
        *ret_mounts = s->namespaces[KIND_MOUNTS];
        return enter_sandbox(s, namespaces & ~CLONE_NEWNS, ret_mark, err);
    }
    /* Now, because in the sandbox's user namespace we may not open files of pid 1 any more. */
    r = enter_open_one(s, KIND_MOUNTS, ret_mounts, err);
    if (r < 0)
        return r;
    return enter_sandbox(s, namespaces & ~CLONE_NEWNS, NULL, err);
}
