/*
 * The kernel headers may be older than the kernel, so newer constants are defined here. A kernel
 * refuses rights that it does not know, so each version gets its own set.
 */
#include "lib/os/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"

enum {
    NET_BIND_TCP = 1 << 0,
    NET_CONNECT_TCP = 1 << 1,
    SCOPE_ABSTRACT_UNIX = 1 << 0,
    SCOPE_SIGNAL = 1 << 1,
    RULE_NET_PORT = 2,
};

#define FS_TRUNCATE (1ULL << 14)
#define FS_IOCTL_DEV (1ULL << 15)

struct ruleset {
    uint64_t fs, net, scoped;
};

struct net_port {
    uint64_t access, port;
};

/* By Landlock version: how many of the file rights it knows, counted from bit 0. */
static const struct {
    long abi;
    unsigned fs_rights;
} versions[] = {{1, 13}, {2, 14}, {3, 15}, {5, 16}};

static size_t landlock_size_of(long abi)
{
    if (abi >= 6)
        return sizeof(struct ruleset);
    return abi >= 4 ? offsetof(struct ruleset, scoped) : offsetof(struct ruleset, net);
}

static struct ruleset landlock_rules_of(long abi)
{
    struct ruleset r = {0};

    for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
        if (abi >= versions[i].abi)
            r.fs = (1ULL << versions[i].fs_rights) - 1;
    if (abi >= 4)
        r.net = NET_BIND_TCP | NET_CONNECT_TCP;
    if (abi >= 6)
        r.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL;
    return r;
}

static int landlock_allow_tree(int rules, const char *root, uint64_t rights, struct err *err)
{
    _cleanup_close_ int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct landlock_path_beneath_attr below = {.allowed_access = rights, .parent_fd = fd};

    if (fd < 0)
        return err_sys(err, errno, "open '%s' for Landlock", root);
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0) < 0)
        return err_sys(err, errno, "add a folder to a Landlock ruleset");
    return 0;
}

static int landlock_allow_port(int rules, uint16_t port, struct err *err)
{
    struct net_port rule = {.access = NET_CONNECT_TCP, .port = port};

    if (syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) < 0)
        return err_sys(err, errno, "add a port to a Landlock ruleset");
    return 0;
}

static long landlock_version(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool landlock_possible(void)
{
    return landlock_version() >= 1;
}

/* ---- rules of the caller's own ---- */

enum { LANDLOCK_ABI_SCOPES = 6 };

bool landlock_has_scopes(void)
{
    return landlock_version() >= LANDLOCK_ABI_SCOPES;
}

static int landlock_open(struct ruleset want, int *ret, struct err *err)
{
    long abi = landlock_version();

    if (abi < LANDLOCK_ABI_SCOPES) {
        err_set(err, ERR_UNSUPPORTED, "Landlock of this kernel is too old (ABI %ld, needs %d)",
                MAX(abi, 0), LANDLOCK_ABI_SCOPES);
        return err_hint(err, "Use Linux 6.12 or newer, with 'landlock' in the 'lsm=' list of its "
                             "command line.");
    }
    *ret = (int)syscall(SYS_landlock_create_ruleset, &want, landlock_size_of(abi), 0);
    return *ret < 0 ? err_sys(err, errno, "make a Landlock ruleset") : 0;
}

int landlock_rules_open(int *ret, struct err *err)
{
    return landlock_open(landlock_rules_of(LANDLOCK_ABI_SCOPES), ret, err);
}

/* What each kind allows. Nothing may make device nodes. */
static uint64_t landlock_rights_of(enum landlock_kind kind)
{
    const uint64_t all = landlock_rules_of(LANDLOCK_ABI_SCOPES).fs;

    switch (kind) {
    case LANDLOCK_READ:
        return LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
               LANDLOCK_ACCESS_FS_EXECUTE;
    case LANDLOCK_WRITE:
        return all & ~(LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | FS_IOCTL_DEV);
    case LANDLOCK_DEVICE:
        return LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_IOCTL_DEV;
    case LANDLOCK_OWN_FILES:
        return LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE |
               LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_FILE;
    }
    return 0;
}

int landlock_rules_add_fd(int rules, int fd, enum landlock_kind kind, struct err *err)
{
    const uint64_t of_files = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
                              LANDLOCK_ACCESS_FS_EXECUTE | FS_TRUNCATE | FS_IOCTL_DEV;
    struct landlock_path_beneath_attr below = {.allowed_access = landlock_rights_of(kind),
                                               .parent_fd = fd};
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "inspect a file for Landlock");
    if (!S_ISDIR(st.st_mode))
        below.allowed_access &= of_files;
    if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0) < 0)
        return err_sys(err, errno, "add a path to a Landlock ruleset");
    return 0;
}

int landlock_rules_add(int rules, const char *path, enum landlock_kind kind, struct err *err)
{
    _cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);

    if (fd < 0 && (errno == ENOENT || errno == EACCES || errno == ENOTDIR))
        return 0;
    if (fd < 0)
        return err_sys(err, errno, "open '%s' for Landlock", path);
    return landlock_rules_add_fd(rules, fd, kind, err);
}

int landlock_rules_add_port(int rules, uint16_t port, bool listen, struct err *err)
{
    struct net_port rule = {.access = NET_CONNECT_TCP | (listen ? NET_BIND_TCP : 0), .port = port};

    if (!port)
        rule.access = NET_BIND_TCP;
    if (syscall(SYS_landlock_add_rule, rules, RULE_NET_PORT, &rule, 0) < 0)
        return err_sys(err, errno, "add port %u to a Landlock ruleset", port);
    return 0;
}

int landlock_rules_enter(int rules, struct err *err)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        return err_sys(err, errno, "enter a Landlock domain");
    return 0;
}

int landlock_scopes(struct err *err)
{
    const struct ruleset want = {.scoped = SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL};
    _cleanup_close_ int rules = -1;
    int r = landlock_open(want, &rules, err);

    return r < 0 ? r : landlock_rules_enter(rules, err);
}

/* ---- one folder ---- */

static int landlock_restrict(const char *root, bool net, uint16_t port, struct err *err)
{
    long abi = landlock_version();
    struct ruleset want = landlock_rules_of(abi);
    _cleanup_close_ int rules = -1;
    int r;

    if (abi < 1)
        return 0;
    if (!net)
        want.net = 0;
    rules = (int)syscall(SYS_landlock_create_ruleset, &want, landlock_size_of(abi), 0);
    if (rules < 0)
        return err_sys(err, errno, "make a Landlock ruleset");
    r = root ? landlock_allow_tree(rules, root, want.fs, err) : 0;
    if (r < 0)
        return r;
    r = port && want.net ? landlock_allow_port(rules, port, err) : 0;
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        return err_sys(err, errno, "enter a Landlock domain");
    return 1;
}

int landlock_confine(const char *root, uint16_t port, struct err *err)
{
    return landlock_restrict(root, true, port, err);
}

int landlock_domain(const char *root, struct err *err)
{
    int r = landlock_restrict(root, false, 0, err);

    return r ? r : err_set(err, ERR_UNSUPPORTED, "this kernel does not support Landlock");
}
