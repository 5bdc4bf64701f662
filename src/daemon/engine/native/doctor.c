#include "daemon/engine/native/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/engine/native/native.h"
#include "daemon/engine/native/program.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/surroundings.h"

/* A file takes some 400 bytes of kernel memory with what holds it: this many in 4 GiB. */
#define FILES_OF_A_SANDBOX 10000000L

/* One run of all checks. */
struct native_doctor {
    const struct native_engine *n;
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

static void native_doctor_check_kernel(const struct native_doctor *p)
{
    struct utsname u;
    unsigned major = 0, minor = 0;
    bool old;

    uname(&u);
    sscanf(u.release, "%u.%u", &major, &minor);
    old = major < 5 || (major == 5 && minor < 19);
    /* For people: the starts decide. */
    doctor_say(p->report, "kernel", old ? DOCTOR_WARN : DOCTOR_OK,
               "Use Linux 5.19 or newer: overlayfs on id-mapped layers came with it.",
               "Linux %s on %s", u.release, u.machine);
}

/* A start works without overlays, but only with image 'host'. */
static void native_doctor_check_state_folder(const struct native_doctor *p)
{
    const char *fs = surroundings_no_upper(p->n->state_dir);
    char fix[SURROUNDINGS_FIX_MAX];
    struct surroundings s;

    if (!fs)
        return;
    surroundings_look(&s);
    surroundings_fix(&s, NEED_UPPER, p->n->state_dir, fix);
    doctor_say(p->report, "state folder", DOCTOR_WARN, fix,
               "'%s' is on %s: each sandbox gets a copy of image 'host', and other images cannot "
               "be used",
               p->n->state_dir, fs);
}

/* For people who look at the firewall: network 'open' adds the rules when it is first used. */
static void native_doctor_check_forwarding(const struct native_doctor *p)
{
    struct deadline by = deadline_in(5 * USEC_PER_SEC);

    if (!(p->n->engine.caps & ENGINE_CAP_NET_OPEN) || !program_find("iptables") ||
        !network_forward_drops(&by))
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

static void native_doctor_check_resolvers(const struct native_doctor *p)
{
    _cleanup_strv_ char **servers = network_resolvers();
    _cleanup_free_ char *list = servers ? strv_join(servers, ", ") : NULL;

    if (!(p->n->engine.caps & ENGINE_CAP_NET_OPEN))
        return;
    doctor_say(
        p->report, "name servers", list ? DOCTOR_OK : DOCTOR_WARN,
        "Add a 'nameserver ADDRESS' line to /etc/resolv.conf with an IPv4 address that is not on "
        "loopback: names cannot be resolved in sandboxes with network 'open'.",
        "%s", list ? list : "none that a sandbox with network 'open' could reach");
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
               geteuid() == 0 ? "Give the daemon CAP_SYS_RESOURCE: in a container, '--cap-add "
                                "SYS_RESOURCE'."
                              : "Run the daemon as root.",
               "%s",
               able ? "when the machine is out of memory, processes in sandboxes are killed first"
                    : "a process in a sandbox can make itself as safe from the kernel's OOM killer "
                      "as the daemon (no CAP_SYS_RESOURCE)");
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

void native_doctor(struct engine *e, bool wanted, struct doctor_report *ret)
{
    const struct native_doctor p = {.n = native_of(e), .report = ret};
    static void (*const checks[])(const struct native_doctor *) = {
        native_doctor_check_state_folder, native_doctor_check_kernel,
        native_doctor_check_forwarding,   native_doctor_check_resolvers,
        native_doctor_check_accounting,   native_doctor_check_protected,
        native_doctor_check_files,        native_doctor_check_oom_score,
    };

    (void)wanted;
    for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
        checks[i](&p);
}
