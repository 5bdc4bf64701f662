/*
 * Fail closed: a sandbox starts only after the firewall program has accepted the whole batch
 * (network-rules.c has the text).
 *
 * The rules stay as long as a run has the file `open`. A start makes that file before it looks at
 * the rules; a clean-up removes it with the run's folder before it looks for such files. So, of a
 * start and a clean-up on two threads, either the start sees that the rules are gone, or the
 * clean-up sees the file.
 */
#include "daemon/engine/native/network.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/native/program.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

#define RULES_NOTE ".rules"
#define IP_FORWARD "/proc/sys/net/ipv4/ip_forward"

static const uint32_t network_base = 0xc6120000; /* 198.18.0.0/15, RFC 2544: not used in networks */

void network_init(struct network *n, const char *root_id)
{
    *n = (struct network){.root_id = root_id, .runs = -1};
    pthread_mutex_init(&n->lock, NULL);
}

void network_done(struct network *n)
{
    pthread_mutex_destroy(&n->lock);
    free(n->applied);
}

uint32_t network_host_address(uint32_t lease)
{
    return network_base + 2 * lease;
}

uint32_t network_sandbox_address(uint32_t lease)
{
    return network_base + 2 * lease + 1;
}

bool network_possible(void)
{
    return program_find("nft") || program_find("iptables-restore");
}

/* ---- other firewalls ---- */

bool network_forward_drops(const struct deadline *by)
{
    static const char *const argv[] = {"iptables", "-w", "-S", "FORWARD", NULL};
    _cleanup_free_ char *out = NULL;

    return program_run(argv, NULL, by, &out, NULL) >= 0 && strncmp(out, "-P FORWARD DROP", 15) == 0;
}

/* Runs `iptables VERB FORWARD -i|-o <ours> -j ACCEPT`. */
static int native_network_forward_rule(const struct network *n, const char *verb,
                                       const char *direction, const struct deadline *by,
                                       struct err *err)
{
    char ifs[NETWORK_IFNAME_MAX];
    const char *const argv[] = {"iptables", "-w", verb,     "FORWARD", direction,
                                ifs,        "-j", "ACCEPT", NULL};

    network_pattern(n->root_id, '+', ifs);
    return program_run(argv, NULL, by, NULL, err);
}

static const char *const directions[] = {"-i", "-o"};

/* Where another firewall drops forwarded packets by default, it must accept our interfaces. Our
 * own chain comes first and has dropped what must not pass. */
static int native_network_allow_forward(const struct network *n, const struct deadline *by,
                                        struct err *err)
{
    if (!network_forward_drops(by))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(directions); i++) {
        int r = 0;

        if (native_network_forward_rule(n, "-C", directions[i], by, NULL) < 0)
            r = native_network_forward_rule(n, "-I", directions[i], by, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int native_network_disallow_forward(const struct network *n, const struct deadline *by,
                                           struct err *err)
{
    if (!program_find("iptables"))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(directions); i++) {
        int r = 0;

        if (native_network_forward_rule(n, "-C", directions[i], by, NULL) >= 0)
            r = native_network_forward_rule(n, "-D", directions[i], by, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- nft ---- */

static bool native_network_present_nft(const struct network *n, const struct deadline *by)
{
    char table[NETWORK_NAME_MAX];
    const char *const argv[] = {"nft", "list", "table", "inet", table, NULL};

    network_table(n->root_id, table);
    return program_run(argv, NULL, by, NULL, NULL) >= 0;
}

static int native_network_apply_nft(const struct network *n, const char *rules,
                                    const struct deadline *by, struct err *err)
{
    static const char *const argv[] = {"nft", "-f", "-", NULL};
    int r = program_run(argv, rules, by, NULL, err);

    return r < 0 ? r : native_network_allow_forward(n, by, err);
}

static int native_network_remove_nft(const struct network *n, const struct deadline *by,
                                     struct err *err)
{
    static const char *const argv[] = {"nft", "-f", "-", NULL};
    _cleanup_free_ char *batch = NULL;
    char table[NETWORK_NAME_MAX];
    int r;

    network_table(n->root_id, table);
    /* The table is made first: deleting a missing one would be an error. */
    batch = xasprintf("table inet %1$s\ndelete table inet %1$s\n", table);
    r = program_run(argv, batch, by, NULL, err);
    return r < 0 ? r : native_network_disallow_forward(n, by, err);
}

/* ---- iptables ---- */

/* clang-format off */
static const struct { const char *table, *chain, *ours; } jumps[] = {
    {"filter", "FORWARD", "F"}, {"filter", "INPUT", "I"}, {"nat", "POSTROUTING", "N"},
};
/* clang-format on */

static int native_network_jump(const struct network *n, const char *verb, size_t i,
                               const struct deadline *by, struct err *err)
{
    char ours[NETWORK_NAME_MAX];
    const char *const argv[] = {"iptables", "-w", "-t", jumps[i].table, verb, jumps[i].chain,
                                "-j",       ours, NULL};

    network_chain(n->root_id, jumps[i].ours, ours);
    return program_run(argv, NULL, by, NULL, err);
}

static bool native_network_present_iptables(const struct network *n, const struct deadline *by)
{
    bool all = true;

    for (size_t i = 0; all && i < ARRAY_SIZE(jumps); i++)
        all = native_network_jump(n, "-C", i, by, NULL) >= 0;
    return all;
}

static int native_network_apply_iptables(const struct network *n, const char *rules,
                                         const struct deadline *by, struct err *err)
{
    static const char *const restore[] = {"iptables-restore", "-w", "--noflush", NULL};
    int r = program_run(restore, rules, by, NULL, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(jumps); i++) {
        if (native_network_jump(n, "-C", i, by, NULL) < 0)
            r = native_network_jump(n, "-I", i, by, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int native_network_remove_chain(const struct network *n, size_t i, const struct deadline *by,
                                       struct err *err)
{
    char ours[NETWORK_NAME_MAX];
    const char *const flush[] = {"iptables", "-w", "-t", jumps[i].table, "-F", ours, NULL};
    const char *const drop[] = {"iptables", "-w", "-t", jumps[i].table, "-X", ours, NULL};
    int r = 0;

    network_chain(n->root_id, jumps[i].ours, ours);
    if (native_network_jump(n, "-C", i, by, NULL) >= 0)
        r = native_network_jump(n, "-D", i, by, err);
    if (r < 0 || program_run(flush, NULL, by, NULL, NULL) < 0)
        return r; /* no such chain */
    return program_run(drop, NULL, by, NULL, err);
}

static int native_network_remove_iptables(const struct network *n, const struct deadline *by,
                                          struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(jumps); i++) {
        int r = native_network_remove_chain(n, i, by, err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the installed program ---- */

static const struct network_tool {
    const char *program;
    int (*text)(const char *root_id, char *const *resolvers, bool limited, char **ret,
                struct err *err);
    bool (*present)(const struct network *n, const struct deadline *by);
    int (*apply)(const struct network *n, const char *rules, const struct deadline *by,
                 struct err *err);
    int (*remove)(const struct network *n, const struct deadline *by, struct err *err);
} tools[] = {
    {"nft", network_rules_nft, native_network_present_nft, native_network_apply_nft,
     native_network_remove_nft},
    {"iptables-restore", network_rules_iptables, native_network_present_iptables,
     native_network_apply_iptables, native_network_remove_iptables},
};

static const struct network_tool *native_network_find_tool(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        if (program_find(tools[i].program))
            return &tools[i];
    return NULL;
}

static int native_network_make_note(int dirfd, const char *path, struct err *err)
{
    _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    return fd < 0 ? err_sys(err, errno, "note '%s'", path) : 0;
}

static int native_network_apply(struct network *n, const struct network_tool *tool, bool limited,
                                const struct deadline *by, struct err *err)
{
    _cleanup_strv_ char **resolvers = network_resolvers();
    _cleanup_free_ char *rules = NULL;
    int r;

    r = tool->text(n->root_id, resolvers, limited, &rules, err);
    if (r < 0)
        return r;
    if (n->applied && STREQ(n->applied, rules) && tool->present(n, by))
        return 0;
    r = native_network_make_note(n->runs, RULES_NOTE, err);
    if (r < 0)
        return r;
    r = tool->apply(n, rules, by, err);
    if (r < 0)
        return r;
    free(n->applied);
    n->applied = TAKE_PTR(rules);
    return 0;
}

/* A kernel without the modules for the shares refuses all rules. */
static int native_network_ensure_rules(struct network *n, const struct deadline *by,
                                       struct err *err)
{
    const struct network_tool *tool = native_network_find_tool();
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    if (!tool) {
        err_set(err, ERR_UNSUPPORTED,
                "network 'open' needs nft or iptables, and neither is installed");
        return err_hint(err, "Install the package 'nftables', or use --network none.");
    }
    if (!n->unlimited && native_network_apply(n, tool, true, by, &why) >= 0)
        return 0;
    r = native_network_apply(n, tool, false, by, err);
    if (r < 0)
        return r;
    if (!n->unlimited)
        log_warn("network 'open': the number of connections of a sandbox is not limited: %s",
                 why.msg);
    n->unlimited = true;
    return 0;
}

/* With the lock held. A check that began after `asked` serves this caller too. */
static int native_network_check(struct network *n, uint64_t asked, const struct deadline *by,
                                struct err *err)
{
    _cleanup_free_ char *forward = NULL;
    uint64_t began = time_mono();
    int r;

    if (n->applied && n->checked >= asked)
        return 0;
    r = native_network_ensure_rules(n, by, err);
    if (r < 0)
        return r;
    /* Forwarding stays on when the rules are removed: something else may need it by then. */
    if (file_read(AT_FDCWD, IP_FORWARD, 16, &forward, NULL, NULL) < 0 || *forward != '1') {
        r = file_write(AT_FDCWD, IP_FORWARD, "1", err);
        if (r < 0)
            return r;
    }
    n->checked = began;
    return 0;
}

int network_ensure(struct network *n, const char *id, const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *note = xasprintf("%s/open", id);
    uint64_t asked = time_mono();
    int r;

    r = native_network_make_note(n->runs, note, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&n->lock);
    r = native_network_check(n, asked, by, err);
    pthread_mutex_unlock(&n->lock);
    return r < 0 ? err_wrap(err, "firewall rules of network 'open'") : 0;
}

/* True also when that is unknown. */
static bool native_network_any_open(const struct network *n)
{
    int fd = openat(n->runs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool found = false;

    if (!d) {
        fd_close(fd);
        return true;
    }
    for (const struct dirent *e; !found && (e = readdir(d));) {
        _cleanup_free_ char *note = xasprintf("%s/open", e->d_name);

        found = e->d_name[0] != '.' && faccessat(n->runs, note, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    }
    return found;
}

static int native_network_remove_rules(struct network *n, const struct deadline *by,
                                       struct err *err)
{
    const struct network_tool *tool = native_network_find_tool();
    int r = tool ? tool->remove(n, by, err) : 0;

    if (r < 0)
        return err_wrap(err, "remove the firewall rules of network 'open'");
    free(n->applied);
    n->applied = NULL;
    if (unlinkat(n->runs, RULES_NOTE, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove file '%s'", RULES_NOTE);
    return 0;
}

int network_tidy(struct network *n, const struct deadline *by, struct err *err)
{
    int r = 0;

    if (faccessat(n->runs, RULES_NOTE, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    pthread_mutex_lock(&n->lock);
    if (!native_network_any_open(n))
        r = native_network_remove_rules(n, by, err);
    pthread_mutex_unlock(&n->lock);
    return r;
}
