#include "daemon/engine/native/abilities.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/native/disk.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/subids.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/limits.h"
#include "lib/os/caps.h"
#include "lib/os/landlock.h"
#include "lib/os/surroundings.h"
#include "proto/plan.h"

uint32_t native_abilities(const struct native_engine *n)
{
    uint32_t caps = ENGINE_CAP_PTY | ENGINE_CAP_NET_PACKAGES | ENGINE_CAP_IMAGES;
    const struct cgroup_place *place = &n->cgroups.place;

    caps |= place->missing & LIMIT_MEMORY ? 0 : ENGINE_CAP_MEMORY_LIMIT;
    caps |= place->missing & LIMIT_CPUS ? 0 : ENGINE_CAP_CPU_LIMIT;
    caps |= place->missing & LIMIT_PIDS ? 0 : ENGINE_CAP_PIDS_LIMIT;
    caps |= place->parent ? ENGINE_CAP_PAUSE | ENGINE_CAP_STATS : 0;
    if (n->ranges && caps_have(CAP_NET_ADMIN) && network_possible())
        caps |= ENGINE_CAP_NET_OPEN | ENGINE_CAP_NET_ISOLATED;
    caps |= landlock_possible() ? ENGINE_CAP_STRICT : 0;
    caps |= n->no_confined.code ? 0 : ENGINE_CAP_CONFINED;
    if (n->quota || (n->ranges && disk_possible(NULL)))
        caps |= ENGINE_CAP_DISK_LIMIT;
    return caps;
}

uint32_t native_look_again(const struct engine *e)
{
    return native_abilities(container_of(e, const struct native_engine, engine));
}

/* ---- why not ---- */

static void native_abilities_fix(unsigned needs, struct err *err)
{
    char fix[SURROUNDINGS_FIX_MAX];
    struct surroundings s;

    surroundings_look(&s);
    surroundings_fix(&s, needs, NULL, fix);
    if (*fix)
        err_hint(err, "%s", fix);
}

static void native_abilities_no_cgroups(const struct native_engine *n, struct err *err)
{
    const struct cgroup_place *place = &n->cgroups.place;
    struct surroundings s;

    err_set(err, ERR_UNSUPPORTED, "%s", place->why ? place->why : "the controller is missing");
    surroundings_look(&s);
    if (place->hint && s.container == CONTAINER_NONE)
        err_hint(err, "%s", place->hint);
    else
        native_abilities_fix(NEED_CGROUPS, err);
}

static void native_abilities_no_network(const struct native_engine *n, struct err *err)
{
    if (n->ranges && caps_have(CAP_NET_ADMIN)) {
        err_set(err, ERR_UNSUPPORTED, "neither nft nor iptables is installed");
        err_hint(err, "Install the package 'nftables'.");
        return;
    }
    err_set(err, ERR_UNSUPPORTED, "the daemon has no right to make network interfaces");
    native_abilities_fix(NEED_NETWORK, err);
}

static void native_abilities_no_disk(const struct native_engine *n, struct err *err)
{
    const char *missing = NULL;

    if (n->ranges && !disk_possible(&missing)) {
        err_set(err, ERR_UNSUPPORTED, "%s", missing);
        if (strstr(missing, "mkfs.ext4"))
            err_hint(err, "Install the package 'e2fsprogs'.");
        else
            native_abilities_fix(NEED_DEVICES, err);
        return;
    }
    err_set(err, ERR_UNSUPPORTED, "only root can mount disk images");
    native_abilities_fix(NEED_DEVICES, err);
}

void native_lack(const struct engine *e, uint32_t cap, struct err *ret)
{
    const struct native_engine *n = container_of(e, const struct native_engine, engine);

    switch (cap) {
    case ENGINE_CAP_NET_OPEN:
        native_abilities_no_network(n, ret);
        return;
    case ENGINE_CAP_DISK_LIMIT:
        native_abilities_no_disk(n, ret);
        return;
    case ENGINE_CAP_CONFINED:
        err_copy(ret, &n->no_confined);
        return;
    case ENGINE_CAP_STRICT:
        err_set(ret, ERR_UNSUPPORTED, "the kernel has no Landlock, or it is not enabled");
        err_hint(ret, "Use a kernel with Landlock (5.13 or newer), and 'landlock' in the 'lsm=' "
                      "list of its command line.");
        return;
    default: /* the limits of cgroups, and pause */
        native_abilities_no_cgroups(n, ret);
        return;
    }
}

int native_explain_no_shim(struct err *err)
{
    _cleanup_free_ char *noexec = NULL;
    struct surroundings s;

    if (!err || err->errnum != EACCES)
        return err ? -(int)err->code : -ERR_SYSTEM;
    file_read(AT_FDCWD, "/proc/sys/vm/memfd_noexec", 16, &noexec, NULL, NULL);
    if (noexec && *noexec == '2')
        return err_hint(err, "Run 'sysctl -w vm.memfd_noexec=1': ripcord starts a program that has "
                             "no file.");
    surroundings_look(&s);
    if (*s.apparmor)
        return err_hint(err,
                        "Add 'flags=(attach_disconnected)' to the AppArmor profile '%s': ripcord "
                        "starts a program that has no file.",
                        s.apparmor);
    return err_hint(err, "Let the security module of this machine allow programs in a memfd.");
}

int native_check_user_ids(const struct native_engine *n, const struct sandbox_spec *spec,
                          struct err *err)
{
    static const char *const other[] = {"0", "0:0", "root"};
    _cleanup_err_ struct err why = ERR_INIT;
    struct submap ids;
    bool asks = false;

    for (size_t i = 0; i < ARRAY_SIZE(other); i++)
        asks |= STREQ(spec->user, other[i]);
    if (!asks || n->ranges || n->subids.uid)
        return 0;
    if (subids_find(&ids, &why) >= 0) /* since the engine was opened */
        err_set(&why, ERR_UNSUPPORTED, "the daemon has not read /etc/subuid again");
    err_set(err, ERR_UNSUPPORTED,
            "user '%s' does not exist in this sandbox (only id %d is mapped): %s", spec->user,
            PLAN_AGENT_ID, why.msg);
    return err_hint(err, "%s%sRestart the daemon (pid %d).", why.hint ? why.hint : "",
                    why.hint ? " " : "", (int)getpid());
}
