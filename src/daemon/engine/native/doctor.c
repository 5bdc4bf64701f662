#include "daemon/engine/native/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "daemon/engine/native/disk.h"
#include "daemon/engine/native/ids.h"
#include "daemon/engine/native/kernel-probe.h"
#include "daemon/engine/native/network.h"
#include "daemon/engine/native/probe.h"
#include "daemon/engine/native/program.h"
#include "daemon/engine/native/subids.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup.h"

/* A file takes some 400 bytes of kernel memory with what holds it: this many in 4 GiB. */
#define FILES_OF_A_SANDBOX 10000000L

/* One run of all checks. */
struct native_doctor {
    const char *state_dir;
    bool ranges; /* ranges of ids can be mapped */
    struct doctor_report *report;
};

/* A number in a sysctl file, or `missing`. */
static long native_doctor_sysctl_read(const char *path, long missing)
{
    _cleanup_free_ char *text = NULL;

    if (file_read(AT_FDCWD, path, 4096, &text, NULL, NULL) < 0)
        return missing;
    return strtol(text, NULL, 10);
}

/* ---- kernel ---- */

static void native_doctor_check_kernel(const struct native_doctor *p)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    bool old;

    uname(&u);
    sscanf(u.release, "%u.%u", &major, &minor);
    old = major < 5 || (major == 5 && minor < 19);
    /* For people: the probes below decide. */
    doctor_say(p->report, "kernel", old ? DOCTOR_WARN : DOCTOR_OK,
               "Use Linux 5.19 or newer: overlayfs on id-mapped layers came with it.",
               "Linux %s on %s", u.release, u.machine);
}

static void native_doctor_check_namespaces(const struct native_doctor *p)
{
    static const char *const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    _cleanup_strv_ char **missing = NULL;
    _cleanup_free_ char *text = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        _cleanup_free_ char *path = xasprintf("/proc/self/ns/%s", kinds[i]);

        if (access(path, F_OK) < 0)
            strv_add(&missing, kinds[i]);
    }
    text = missing ? strv_join(missing, ", ") : NULL;
    if (text)
        doctor_say(p->report, "namespaces", DOCTOR_FAIL,
                   "Use a kernel that is built with all namespaces.", "missing: %s", text);
    else
        doctor_say(p->report, "namespaces", DOCTOR_OK, NULL,
                   "user, mount, pid, net, ipc, uts, cgroup");
}

static void native_doctor_check_ids(const struct native_doctor *p)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct submap ids;

    if (p->ranges)
        doctor_say(p->report, "id ranges", DOCTOR_OK, NULL,
                   "each sandbox gets 65,536 ids of its own");
    else if (subids_find(&ids, &err) >= 0 && kernel_probe_subids(&ids, &err) >= 0)
        doctor_say(p->report, "id ranges", DOCTOR_OK, NULL,
                   "newuidmap: the sandboxes of this user share the %d ids from %u", SUBMAP_COUNT,
                   ids.uid);
    else
        doctor_say(
            p->report, "id ranges", DOCTOR_WARN,
            err.hint ? err.hint
                     : "Make newuidmap setuid root, and run the daemon where new privileges are "
                       "allowed.",
            "only this user's own id can be mapped, so a sandbox has only the user 'agent' and "
            "'--user 0' is refused: %s",
            err.msg);
}

static const char *native_doctor_userns_fix(void)
{
    if (native_doctor_sysctl_read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) > 0)
        return "Run 'sysctl -w kernel.apparmor_restrict_unprivileged_userns=0', or give ripcordd "
               "an AppArmor profile with 'userns,': AppArmor restricts user namespaces (Ubuntu "
               "23.10 and later).";
    if (native_doctor_sysctl_read("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
        return "Run 'sysctl -w kernel.unprivileged_userns_clone=1'.";
    if (native_doctor_sysctl_read("/proc/sys/user/max_user_namespaces", 1) == 0)
        return "Run 'sysctl -w user.max_user_namespaces=15000'.";
    return "Run the daemon as root, or allow 'unshare' and 'mount' in its seccomp profile: a "
           "security module or a container runtime forbids them.";
}

static void native_doctor_check_userns(const struct native_doctor *p)
{
    _cleanup_err_ struct err err = ERR_INIT;
    long max = native_doctor_sysctl_read("/proc/sys/user/max_user_namespaces", -1);

    if (kernel_probe_user_namespace(&err) >= 0)
        doctor_say(p->report, "user namespaces", DOCTOR_OK, NULL, "ordinary users may create them");
    else
        doctor_say(p->report, "user namespaces", p->ranges ? DOCTOR_WARN : DOCTOR_FAIL,
                   native_doctor_userns_fix(), "ordinary users may not create them: %s", err.msg);
    doctor_say(p->report, "max_user_namespaces",
               max == 0               ? DOCTOR_FAIL
               : max > 0 && max < 100 ? DOCTOR_WARN
                                      : DOCTOR_OK,
               "Run 'sysctl -w user.max_user_namespaces=15000'.", max < 0 ? "unlimited" : "%ld",
               max);
}

static void native_doctor_check_overlay(const struct native_doctor *p)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const char *what = p->ranges ? "on id-mapped layers" : "on plain layers";

    if (kernel_probe_overlay(p->state_dir, p->ranges, &err) >= 0)
        doctor_say(p->report, "overlay", DOCTOR_OK, NULL, "works %s in '%s'", what, p->state_dir);
    else
        doctor_say(
            p->report, "overlay", DOCTOR_FAIL,
            "Put the state folder on a file system that supports id-mapped mounts and can be an "
            "overlay's upper layer (ext4, xfs, btrfs, tmpfs), on Linux 5.19 or newer.",
            "does not work %s in '%s': %s", what, p->state_dir, err.msg);
}

static void native_doctor_check_proc(const struct native_doctor *p)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (kernel_probe_proc(p->ranges, &err) >= 0)
        doctor_say(p->report, "proc", DOCTOR_OK, NULL, "can be mounted in a sandbox");
    else
        doctor_say(p->report, "proc", DOCTOR_FAIL,
                   "Parts of /proc are masked, as in a container. Start that container with "
                   "'--security-opt systempaths=unconfined'.",
                   "cannot be mounted in a sandbox: %s", err.msg);
}

static void native_doctor_check_cgroup(const struct native_doctor *p)
{
    static const struct {
        enum limit_bit bit;
        const char *name;
    } limits[] = {{LIMIT_MEMORY, "memory"}, {LIMIT_CPUS, "cpu"}, {LIMIT_PIDS, "pids"}};
    _cleanup_strv_ char **missing = NULL;
    _cleanup_free_ char *text = NULL;
    const char *version = "none";
    uint32_t unenforced = cgroup_probe(&version);

    for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
        if (unenforced & limits[i].bit)
            strv_add(&missing, limits[i].name);
    text = missing ? strv_join(missing, ", ") : NULL;
    if (text)
        doctor_say(
            p->report, "cgroup", DOCTOR_WARN,
            "Run the daemon as root, where the controllers are enabled and writable. A cgroup that "
            "systemd delegates to an ordinary user is not used.",
            "%s; limits that cannot be enforced: %s (default limits are dropped, requested ones "
            "are refused)%s",
            version, text, STREQ(version, "none") ? "; sandboxes cannot be paused" : "");
    else
        doctor_say(p->report, "cgroup", DOCTOR_OK, NULL, "%s with memory, cpu and pids", version);
}

/* Words of the kernel's command line that turn a part of the accounting off. */
static void native_doctor_check_accounting(const struct native_doctor *p)
{
    static const char *const words[] = {"nosocket", "nokmem"};
    _cleanup_free_ char *line = NULL;
    const char *off = NULL;

    if (file_read(AT_FDCWD, "/proc/cmdline", KIB(64), &line, NULL, NULL) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strstr(line, "cgroup.memory=") && strstr(line, words[i]))
            off = words[i];
    if (off)
        doctor_say(p->report, "memory accounting", DOCTOR_WARN,
                   "Boot without it: a sandbox can hold kernel memory beyond its memory limit.",
                   "the kernel was booted with 'cgroup.memory=%s'", off);
    else
        doctor_say(p->report, "memory accounting", DOCTOR_OK, NULL,
                   "the memory limit includes kernel memory");
}

/*
 * RLIMIT_NOFILE does not bound the files that a sandbox holds: a mapped file, or one in flight in a
 * socket, needs no descriptor. Its memory limit does, as each file is charged. So the table of the
 * machine must not be smaller than what fits into that memory.
 */
static void native_doctor_check_files(const struct native_doctor *p)
{
    long most = native_doctor_sysctl_read("/proc/sys/fs/file-max", LONG_MAX);

    doctor_say(p->report, "open files", most < FILES_OF_A_SANDBOX ? DOCTOR_WARN : DOCTOR_OK,
               "Run 'sysctl -w fs.file-max=9223372036854775807', as systemd does at boot: the "
               "memory limit of a sandbox bounds its files.",
               most < FILES_OF_A_SANDBOX
                   ? "fs.file-max is %ld: one sandbox with 4 GiB of memory can take all of them"
                   : "fs.file-max is %ld",
               most);
}

/* The kernel lets a process lower its score again, unless a process with this capability set it. */
static void native_doctor_check_oom_score(const struct native_doctor *p)
{
    bool able = prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE, 0, 0, 0) == 1 && geteuid() == 0;

    doctor_say(p->report, "oom score", able ? DOCTOR_OK : DOCTOR_WARN,
               "Run the daemon as root with CAP_SYS_RESOURCE.", "%s",
               able ? "when the machine is out of memory, processes in sandboxes are killed first"
                    : "a process in a sandbox can make itself as safe from the kernel's OOM killer "
                      "as the daemon (no CAP_SYS_RESOURCE)");
}

static void native_doctor_check_seccomp(const struct native_doctor *p)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    bool ok = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;

    doctor_say(p->report, "seccomp", ok ? DOCTOR_OK : DOCTOR_FAIL,
               "Use a kernel with CONFIG_SECCOMP_FILTER.", "%s",
               ok ? "filters work" : strerror(errno));
}

static void native_doctor_check_landlock(const struct native_doctor *p)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (abi > 0)
        doctor_say(p->report, "landlock", DOCTOR_OK, NULL, "ABI %ld", abi);
    else
        doctor_say(p->report, "landlock", DOCTOR_WARN,
                   "Boot with 'landlock' in the 'lsm=' list to add this second guard.",
                   "not available: %s", strerror(errno));
}

static void native_doctor_check_memfd(const struct native_doctor *p)
{
    long level = native_doctor_sysctl_read("/proc/sys/vm/memfd_noexec", 0);

    doctor_say(p->report, "memfd", level >= 2 ? DOCTOR_FAIL : DOCTOR_OK,
               "Run 'sysctl -w vm.memfd_noexec=1'.", "%s",
               level >= 2 ? "cannot be executed (vm.memfd_noexec)" : "can be executed");
}

static void native_doctor_check_protected(const struct native_doctor *p)
{
    static const char *const names[] = {"protected_symlinks", "protected_hardlinks",
                                        "protected_fifos", "protected_regular"};
    _cleanup_strv_ char **off = NULL;
    _cleanup_free_ char *text = NULL, *fix = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *path = xasprintf("/proc/sys/fs/%s", names[i]);

        if (native_doctor_sysctl_read(path, 1) == 0)
            strv_push(&off, xasprintf("fs.%s=1", names[i]));
    }
    text = off ? strv_join(off, " ") : NULL;
    fix = text ? xasprintf("Run 'sysctl -w %s'.", text) : NULL;
    doctor_say(p->report, "protected files", text ? DOCTOR_WARN : DOCTOR_OK, fix, "%s",
               text ? "the kernel's protection of files in shared folders is off"
                    : "the kernel's protection is on");
}

static void native_doctor_check_firewall(const struct native_doctor *p)
{
    bool nft = program_find("nft"), iptables = program_find("iptables");

    if (!p->ranges) {
        doctor_say(p->report, "network open", DOCTOR_WARN, "Run the daemon as root.",
                   "not available to an ordinary user: '--network open' is refused");
        return;
    }
    doctor_say(p->report, "firewall", nft || iptables ? DOCTOR_OK : DOCTOR_WARN,
               "Install the package 'nftables' to use network 'open'.", "%s",
               nft        ? "nft"
               : iptables ? "iptables"
                          : "neither nft nor iptables found");
}

/* Network 'open' sets both when it is first used; these lines show what could prevent that. */
static void native_doctor_check_forwarding(const struct native_doctor *p)
{
    struct deadline by = deadline_in(5 * USEC_PER_SEC);
    bool on = native_doctor_sysctl_read("/proc/sys/net/ipv4/ip_forward", 0) > 0;

    if (!p->ranges)
        return;
    if (access("/proc/sys/net/ipv4/ip_forward", W_OK) < 0 && !on)
        doctor_say(p->report, "ip_forward", DOCTOR_WARN,
                   "Run 'sysctl -w net.ipv4.ip_forward=1' to use network 'open'.",
                   "off, and cannot be set from here");
    else
        doctor_say(p->report, "ip_forward", DOCTOR_OK, NULL, "%s",
                   on ? "on" : "off; network 'open' turns it on when it is first used");
    if (!program_find("iptables") || !network_forward_drops(&by))
        return;
    if (program_find("nft"))
        doctor_say(
            p->report, "forward policy", DOCTOR_OK, NULL,
            "iptables drops forwarded packets (Docker sets this); network 'open' adds rules to "
            "FORWARD that accept its own interfaces");
    else
        doctor_say(p->report, "forward policy", DOCTOR_OK, NULL,
                   "iptables drops forwarded packets; network 'open' puts its rules before that");
}

static void native_doctor_check_disk(const struct native_doctor *p)
{
    const char *missing = NULL;

    if (!p->ranges)
        missing = "a range of ids is needed to mount disk images";
    if (!missing && disk_possible(&missing))
        doctor_say(p->report, "disk limit", DOCTOR_OK, NULL, "with a disk image for each sandbox");
    else
        doctor_say(p->report, "disk limit", DOCTOR_WARN,
                   "Run the daemon as root, outside of containers, with 'e2fsprogs' installed and "
                   "the kernel's 'loop' driver, to use --disk.",
                   "not available: %s", missing);
}

static void native_doctor_check_resolvers(const struct native_doctor *p)
{
    _cleanup_strv_ char **servers = network_resolvers();
    _cleanup_free_ char *list = servers ? strv_join(servers, ", ") : NULL;

    if (!p->ranges)
        return;
    doctor_say(
        p->report, "name servers", list ? DOCTOR_OK : DOCTOR_WARN,
        "Add a 'nameserver ADDRESS' line to /etc/resolv.conf with an IPv4 address that is not on "
        "loopback: names cannot be resolved in sandboxes with network 'open'.",
        "%s", list ? list : "none that a sandbox with network 'open' could reach");
}

void native_doctor(const char *state_dir, struct doctor_report *ret)
{
    struct native_doctor p = {.state_dir = state_dir, .report = ret};
    static void (*const checks[])(const struct native_doctor *) = {
        native_doctor_check_kernel,   native_doctor_check_namespaces, native_doctor_check_ids,
        native_doctor_check_userns,   native_doctor_check_overlay,    native_doctor_check_proc,
        native_doctor_check_cgroup,   native_doctor_check_accounting, native_doctor_check_seccomp,
        native_doctor_check_landlock, native_doctor_check_memfd,      native_doctor_check_protected,
        native_doctor_check_firewall, native_doctor_check_forwarding, native_doctor_check_resolvers,
        native_doctor_check_disk,     native_doctor_check_files,      native_doctor_check_oom_score,
    };

    *ret = (struct doctor_report)DOCTOR_REPORT_INIT;
    /* The daemon is not dumpable, and an ordinary user can write id maps only of dumpable
     * children. */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    p.ranges = probe_id_ranges(IDS_FIRST, (uint64_t)IDS_LEASES * IDS_COUNT);
    dir_make_all(AT_FDCWD, state_dir, 0700, NULL); /* a failure shows in the overlay probe */
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
        checks[i](&p);
}
