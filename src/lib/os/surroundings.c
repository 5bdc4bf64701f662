/*
 * Reads files of /proc, /run and /etc. A file that cannot be read counts as absent: then a reason
 * is not named, which is better than a wrong one.
 */
#include "lib/os/surroundings.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/os/caps.h"

enum { SURROUNDINGS_TEXT_MAX = 1 << 20 };

static char *surroundings_text(int root, const char *path)
{
    char *text = NULL;

    return file_read(root, path, SURROUNDINGS_TEXT_MAX, &text, NULL, NULL) < 0 ? NULL : text;
}

static long surroundings_number(int root, const char *path, long missing)
{
    _cleanup_free_ char *text = surroundings_text(root, path);

    return text && *text ? strtol(text, NULL, 10) : missing;
}

/* Docker and Podman leave a file of their own in each container; Kubernetes writes /etc/hosts; and
 * systemd-nspawn and LXC name themselves in /run. A machine whose disk was made from an image has
 * such files too, but its /proc shows the kernel's threads. (Our own pid namespace says nothing:
 * pid 1 of a sandbox has a new one.) */
static enum container_kind surroundings_container(int root)
{
    _cleanup_free_ char *hosts = surroundings_text(root, "etc/hosts");
    _cleanup_free_ char *second = surroundings_text(root, "proc/2/comm");

    if (second && STREQ(second, "kthreadd\n"))
        return CONTAINER_NONE;
    if (hosts && strstr(hosts, "Kubernetes-managed"))
        return CONTAINER_KUBERNETES;
    if (faccessat(root, "run/.containerenv", F_OK, 0) == 0)
        return CONTAINER_PODMAN;
    if (faccessat(root, ".dockerenv", F_OK, 0) == 0)
        return CONTAINER_DOCKER;
    return faccessat(root, "run/systemd/container", F_OK, 0) == 0 ? CONTAINER_OTHER
                                                                  : CONTAINER_NONE;
}

/* "profile (enforce)". Profiles in mode `unconfined` or `complain` restrict nothing. */
static void surroundings_profile(int root, char ret[static SURROUNDINGS_NAME_MAX])
{
    _cleanup_free_ char *text = surroundings_text(root, "proc/self/attr/apparmor/current");
    char *mode;

    if (!text)
        text = surroundings_text(root, "proc/self/attr/current");
    mode = text ? strstr(text, " (enforce)") : NULL;
    if (mode)
        snprintf(ret, SURROUNDINGS_NAME_MAX, "%.*s", (int)(mode - text), text);
}

static bool surroundings_has_option(const char *options, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = options; *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || !p[n]))
            return true;
    return false;
}

/*
 * The kernel mounts a new /proc in a user namespace only where one is wholly visible and as
 * writable as the new one would be. A mount on an empty folder covers nothing: binfmt_misc.
 */
static bool surroundings_masks(int root)
{
    _cleanup_free_ char *text = surroundings_text(root, "proc/self/mountinfo");
    char *rest = text, *line;

    while (rest && (line = strsep(&rest, "\n"))) {
        const char *path = NULL, *options;

        for (int i = 0; i < 5; i++) /* id, parent, device, root, mount point */
            path = strsep(&line, " ");
        options = line ? strsep(&line, " ") : NULL;
        if (!options)
            continue;
        if (STREQ(path, "/proc") && surroundings_has_option(options, "ro"))
            return true;
        if (strncmp(path, "/proc/", 6) == 0 && !STREQ(path, "/proc/sys/fs/binfmt_misc"))
            return true;
    }
    return false;
}

static bool surroundings_filtered(int root)
{
    _cleanup_free_ char *text = surroundings_text(root, "proc/self/status");

    return text && strstr(text, "\nSeccomp:\t2\n");
}

static void surroundings_limits(int root, char ret[static SURROUNDINGS_NAME_MAX])
{
    static const char *const kinds[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char path[64];

        snprintf(path, sizeof(path), "proc/sys/user/max_%s_namespaces", kinds[i]);
        if (surroundings_number(root, path, 1) != 0)
            continue;
        snprintf(ret, SURROUNDINGS_NAME_MAX, "user.max_%s_namespaces", kinds[i]);
        return;
    }
}

void surroundings_look_at(int root, struct surroundings *ret)
{
    *ret = (struct surroundings){
        .container = surroundings_container(root),
        .root = geteuid() == 0,
        .seccomp = surroundings_filtered(root),
        .masked_proc = surroundings_masks(root),
        .cgroup2 = faccessat(root, "sys/fs/cgroup/cgroup.controllers", F_OK, 0) == 0,
        .userns_locked = surroundings_number(
                             root, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) > 0,
        .userns_off =
            surroundings_number(root, "proc/sys/kernel/unprivileged_userns_clone", 1) == 0,
    };
    surroundings_profile(root, ret->apparmor);
    surroundings_limits(root, ret->no_namespaces);
}

void surroundings_look(struct surroundings *ret)
{
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    surroundings_look_at(root, ret);
}

bool surroundings_proc_is_masked(void)
{
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    return surroundings_masks(root);
}

const char *surroundings_no_upper(const char *path)
{
    static const struct {
        long magic;
        const char *name;
    } kinds[] = {
        {OVERLAYFS_SUPER_MAGIC, "overlay"},
        {NFS_SUPER_MAGIC, "NFS"},
        {FUSE_SUPER_MAGIC, "FUSE or virtiofs"},
        {V9FS_MAGIC, "9p"},
        {MSDOS_SUPER_MAGIC, "vfat"},
        {CIFS_SUPER_MAGIC, "CIFS"},
        {SMB2_SUPER_MAGIC, "SMB"},
        {ECRYPTFS_SUPER_MAGIC, "ecryptfs"},
    };
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (fs.f_type == kinds[i].magic)
            return kinds[i].name;
    return NULL;
}

/* ---- what helps ---- */

struct surroundings_text {
    char *text;
    size_t len;
};

_printf_(2, 3) static void surroundings_add(struct surroundings_text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->text + t->len, SURROUNDINGS_FIX_MAX - t->len, fmt, ap);
    va_end(ap);
    t->len = MIN(t->len + (size_t)MAX(n, 0), (size_t)SURROUNDINGS_FIX_MAX - 1);
}

/* Adds one item of a list: `intro` before the first, `sep` before all others. */
static void surroundings_item(struct surroundings_text *t, const char *intro, const char *sep,
                              const char *item)
{
    surroundings_add(t, "%s%s", t->len ? sep : intro, item);
}

static void surroundings_option(struct surroundings_text *t, const char *option)
{
    surroundings_item(t, "Start the container with ", " ", option);
}

/* Options that need a privileged container. On cgroup v1 there is no namespace of hierarchies, so
 * no engine lets a container write to them. */
static bool surroundings_wants_all(const struct surroundings *s, unsigned needs)
{
    return needs & NEED_DEVICES || (needs & NEED_CGROUPS && !s->cgroup2);
}

/* Options of `docker run` and `podman run`. The volume comes last, as its name is free. */
static void surroundings_options(const struct surroundings *s, unsigned needs,
                                 const char *state_dir, struct surroundings_text *t)
{
    bool podman = s->container == CONTAINER_PODMAN;
    char volume[SURROUNDINGS_FIX_MAX / 2];

    if (surroundings_wants_all(s, needs)) {
        surroundings_option(t, "--privileged");
        needs &= NEED_UPPER;
    }
    if (needs & NEED_NETWORK && !caps_have(CAP_SYS_ADMIN))
        surroundings_option(t, "--cap-add SYS_ADMIN");
    if (needs & NEED_NETWORK && !caps_have(CAP_NET_ADMIN))
        surroundings_option(t, "--cap-add NET_ADMIN");
    if (needs & NEED_NAMESPACES && s->seccomp)
        surroundings_option(t, "--security-opt seccomp=unconfined");
    if (needs & (NEED_NAMESPACES | NEED_PROFILE | NEED_PROC | NEED_NETWORK) && *s->apparmor)
        surroundings_option(t, "--security-opt apparmor=unconfined");
    if (needs & (NEED_PROC | NEED_NETWORK) && s->masked_proc)
        surroundings_option(t, podman ? "--security-opt 'unmask=/proc/*'"
                                      : "--security-opt systempaths=unconfined");
    if (needs & NEED_CGROUPS)
        surroundings_option(t, podman ? "--security-opt unmask=/sys/fs/cgroup"
                                      : "--security-opt writable-cgroups=true");
    if (needs & NEED_UPPER && state_dir) {
        snprintf(volume, sizeof(volume), "-v ripcord:%s", state_dir);
        surroundings_option(t, volume);
    }
    if (t->len)
        surroundings_add(t, ".");
}

static void surroundings_field(struct surroundings_text *t, const char *field)
{
    surroundings_item(t, "Set in the pod: ", ", ", field);
}

static void surroundings_pod(const struct surroundings *s, unsigned needs, const char *state_dir,
                             struct surroundings_text *t)
{
    char volume[SURROUNDINGS_FIX_MAX / 2];

    if (needs & (NEED_DEVICES | NEED_CGROUPS))
        surroundings_field(t, "privileged: true");
    else if (needs & NEED_NETWORK)
        surroundings_field(t, "capabilities: {add: [SYS_ADMIN, NET_ADMIN]}, procMount: Unmasked");
    else if (needs & NEED_PROC)
        surroundings_field(t, "capabilities: {add: [SYS_ADMIN]}");
    if (needs & (NEED_NAMESPACES | NEED_PROC) && s->seccomp)
        surroundings_field(t, "seccompProfile: {type: Unconfined}");
    if (needs & (NEED_NAMESPACES | NEED_PROFILE | NEED_PROC) && *s->apparmor)
        surroundings_field(t, "appArmorProfile: {type: Unconfined}");
    if (needs & NEED_UPPER && state_dir) {
        snprintf(volume, sizeof(volume), "an emptyDir volume at '%s'", state_dir);
        surroundings_field(t, volume);
    }
    if (t->len)
        surroundings_add(t, ".");
}

/* The kernel's own profile of namespaces that programs without a profile make (Ubuntu). */
#define UNPRIVILEGED_PROFILE "unprivileged_userns"

/* On a machine: what forbids namespaces there. */
static void surroundings_machine(const struct surroundings *s, struct surroundings_text *t)
{
    bool own = *s->apparmor && !STREQ(s->apparmor, UNPRIVILEGED_PROFILE);

    if (*s->no_namespaces)
        surroundings_add(t, "Run 'sysctl -w %s=15000'.", s->no_namespaces);
    else if (s->userns_off)
        surroundings_add(t, "Run 'sysctl -w kernel.unprivileged_userns_clone=1'.");
    else if (own)
        surroundings_add(t, "Allow userns, mount and capability in the AppArmor profile '%s'.",
                         s->apparmor);
    else if (*s->apparmor || s->userns_locked)
        surroundings_add(t, "Load the AppArmor profile that comes with ripcord: copy "
                            "share/ripcord/apparmor to /etc/apparmor.d/ripcord, and run "
                            "'apparmor_parser -r /etc/apparmor.d/ripcord'.");
    else if (s->seccomp)
        surroundings_add(t, "Remove SystemCallFilter= and RestrictNamespaces= from the unit, or "
                            "the seccomp filter of the program that starts the daemon.");
}

void surroundings_fix(const struct surroundings *s, unsigned needs, const char *state_dir,
                      char ret[static SURROUNDINGS_FIX_MAX])
{
    struct surroundings_text t = {.text = ret};

    *ret = '\0';
    if (*s->no_namespaces && needs & NEED_NAMESPACES && s->container != CONTAINER_NONE)
        surroundings_add(&t, "Run 'sysctl -w %s=15000' on the machine, outside of the container.",
                         s->no_namespaces);
    else if (s->container == CONTAINER_DOCKER || s->container == CONTAINER_PODMAN)
        surroundings_options(s, needs, state_dir, &t);
    else if (s->container == CONTAINER_KUBERNETES)
        surroundings_pod(s, needs, state_dir, &t);
    else if (needs & (NEED_NAMESPACES | NEED_PROFILE | NEED_PROC))
        surroundings_machine(s, &t);
    else if (needs & NEED_UPPER)
        surroundings_add(&t, "Choose a state folder on ext4, xfs, btrfs or tmpfs: --root DIR.");
    else if (!s->root)
        surroundings_add(&t, "Run the daemon as root.");
}
