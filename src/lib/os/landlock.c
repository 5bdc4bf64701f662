/*
 * The kernel headers may be older than the kernel, so newer constants are defined here. A kernel
 * refuses rights that it does not know, so each version gets its own set.
 */
#include "lib/os/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
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

struct ruleset {
    uint64_t fs, net, scoped;
};

struct net_port {
    uint64_t access, port;
};

/* First version that knows them -> how many of the file rights, counted from bit 0. */
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

static int os_landlock_restrict_self(const char *root, bool net, uint16_t port, struct err *err)
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
    return os_landlock_restrict_self(root, true, port, err);
}

int landlock_domain(const char *root, struct err *err)
{
    int r = os_landlock_restrict_self(root, false, 0, err);

    return r ? r : err_set(err, ERR_UNSUPPORTED, "this kernel does not support Landlock");
}
