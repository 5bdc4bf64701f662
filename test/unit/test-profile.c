/*
 * The engine's profile, as engines use it: handed to libseccomp entry by entry, compiled, and asked
 * about calls. It must say of each what the native filter says: one table, two forms.
 */
#include "daemon/engine/docker/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/macro.h"
#include "lib/os/seccomp-filter.h"
#include "lib/os/seccomp-table.h"
#include "tap.h"

enum { NUMBERS = 460, INSTRUCTIONS_MAX = 4096 };

static struct sock_filter theirs[INSTRUCTIONS_MAX];
static size_t n_theirs;

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

static uint64_t number_of(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static uint32_t action_of(const json_t *entry)
{
    if (STREQ(text_of(entry, "action"), "SCMP_ACT_ALLOW"))
        return SCMP_ACT_ALLOW;
    return SCMP_ACT_ERRNO(number_of(entry, "errnoRet"));
}

/* As runc does: a name that the library does not know is left out, and what the default says anyway
 * (below), as the library takes that for a mistake. */
static bool add_entry(scmp_filter_ctx ctx, const json_t *entry)
{
    struct scmp_arg_cmp cmp[6];
    unsigned n_cmp = 0;
    const json_t *name, *arg;
    size_t i;

    json_array_foreach (json_object_get(entry, "args"), i, arg) {
        if (!STREQ(text_of(arg, "op"), "SCMP_CMP_MASKED_EQ") || n_cmp == ARRAY_SIZE(cmp))
            return false;
        cmp[n_cmp++] = SCMP_CMP64((unsigned)number_of(arg, "index"), SCMP_CMP_MASKED_EQ,
                                  number_of(arg, "value"), number_of(arg, "valueTwo"));
    }
    json_array_foreach (json_object_get(entry, "names"), i, name) {
        int nr = seccomp_syscall_resolve_name(json_string_value(name));

        if (nr < 0)
            continue;
        if (seccomp_rule_add_array(ctx, action_of(entry), nr, n_cmp, cmp) < 0)
            return false;
    }
    return true;
}

static bool export_filter(scmp_filter_ctx ctx)
{
    _cleanup_close_ int fd = memfd_create("profile", MFD_CLOEXEC);
    ssize_t n;

    if (seccomp_export_bpf(ctx, fd) < 0)
        return false;
    n = pread(fd, theirs, sizeof(theirs), 0);
    n_theirs = n > 0 ? (size_t)n / sizeof(theirs[0]) : 0;
    return n_theirs > 0 && n_theirs < INSTRUCTIONS_MAX;
}

static bool compile_theirs(enum seccomp_variant variant)
{
    _cleanup_free_ char *text = profile_text(variant);
    _cleanup_json_ json_t *doc = NULL;
    const json_t *entry;
    scmp_filter_ctx ctx;
    bool ok = true;
    size_t i;

    if (json_parse("profile", text, strlen(text), &doc, NULL) < 0)
        return false;
    ctx = seccomp_init(SCMP_ACT_ERRNO(number_of(doc, "defaultErrnoRet")));
    json_array_foreach (json_object_get(doc, "syscalls"), i, entry)
        if (action_of(entry) != SCMP_ACT_ERRNO(number_of(doc, "defaultErrnoRet")))
            ok = ok && add_entry(ctx, entry);
    ok = ok && export_filter(ctx);
    seccomp_release(ctx);
    return ok;
}

/* Same number, same verdict; of a refused argument only that it is refused. */
static bool agree_on(enum seccomp_variant variant, int nr, uint64_t a0, uint64_t a1, uint64_t a2,
                     uint64_t a3)
{
    static struct sock_filter *ours[SECCOMP_VARIANTS];
    static size_t n_ours[SECCOMP_VARIANTS];
    const struct seccomp_data d = {
        .nr = nr, .arch = seccomp_arch_native(), .args = {a0, a1, a2, a3}};
    uint32_t us, them;

    if (!ours[variant])
        ours[variant] = seccomp_filter_compile(variant, &n_ours[variant]);
    us = bpf_run(ours[variant], n_ours[variant], &d);
    them = bpf_run(theirs, n_theirs, &d);
    return (us == SECCOMP_RET_ALLOW) == (them == SECCOMP_RET_ALLOW) &&
           (us & SECCOMP_RET_ACTION_FULL) == (them & SECCOMP_RET_ACTION_FULL);
}

static bool agree(int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    return agree_on(SECCOMP_SET_ID, nr, a0, a1, a2, 0);
}

TEST(libseccomp_knows_the_same_numbers)
{
    const struct seccomp_call *c;
    size_t known = 0;

    for (size_t i = 0; (c = seccomp_call_at(SECCOMP_SET_ID, i)); i++) {
        int nr = seccomp_syscall_resolve_name(c->name);

        known += nr >= 0;
        CHECK(nr < 0 || nr == c->nr);
    }
    CHECK(known > 300);
}

TEST(engines_can_compile_it)
{
    CHECK(compile_theirs(SECCOMP_SET_ID));
}

TEST(it_says_what_the_native_filter_says)
{
    CHECK(compile_theirs(SECCOMP_SET_ID));
    for (int nr = 0; nr < NUMBERS; nr++) {
        _cleanup_free_ char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);

        if (name) /* else the library is too old to know the call, and leaves it out */
            CHECK(agree(nr, 0, 0, 0));
    }
}

TEST(also_of_arguments)
{
    static const uint64_t high[] = {0, 1ULL << 32, 0x123ULL << 32};

    CHECK(compile_theirs(SECCOMP_SET_ID));
    for (size_t h = 0; h < ARRAY_SIZE(high); h++) {
        for (unsigned bit = 0; bit < 32; bit++) {
            CHECK(agree(SYS_clone, 1ULL << bit | high[h], 0, 0));
            CHECK(agree(SYS_clone, 17 | 1ULL << bit | high[h], 0, 0));
            CHECK(agree(SYS_personality, 1ULL << bit | high[h], 0, 0));
        }
        for (uint64_t request = 0x5300; request < 0x5500; request++)
            CHECK(agree(SYS_ioctl, 0, request | high[h], 0));
        for (uint64_t family = 0; family < 64; family++)
            for (uint64_t protocol = 0; protocol < 270; protocol++)
                CHECK(agree(SYS_socket, family | high[h], SOCK_RAW, protocol | high[h]) &&
                      agree(SYS_socketpair, family | high[h], SOCK_RAW, protocol));
    }
}

TEST(also_of_set_id_bits)
{
    static const uint64_t flags[] = {
        0,      O_CREAT,     O_TMPFILE,  O_CREAT | O_TMPFILE, O_RDWR, O_CREAT | O_EXCL,
        O_PATH, O_DIRECTORY, 1ULL << 32, O_CREAT | 1ULL << 32};

    CHECK(compile_theirs(SECCOMP_NO_SET_ID));
    for (int nr = 0; nr < NUMBERS; nr++) {
        _cleanup_free_ char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);

        for (uint64_t mode = 0; name && mode <= 07000; mode += 01000)
            for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
                CHECK(agree_on(SECCOMP_NO_SET_ID, nr, 0, flags[i], mode, 0) &&
                      agree_on(SECCOMP_NO_SET_ID, nr, 0, mode | 0755, flags[i], mode) &&
                      agree_on(SECCOMP_NO_SET_ID, nr, 0, 0, flags[i], mode | 0644));
    }
}
