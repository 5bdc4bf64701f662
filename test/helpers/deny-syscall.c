/*
 * deny-syscall NAME[,NAME...] -- COMMAND...: runs a command as if the kernel lacked these system
 * calls: each fails with ENOSYS, also in all processes that the command starts. For tests of our
 * fallbacks.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/macro.h"

enum { CALLS_MAX = 32 };

/* clang-format off */
static const struct { const char *name; int nr; } calls[] = {
    {"openat2", SYS_openat2}, {"clone3", SYS_clone3}, {"pidfd_open", SYS_pidfd_open}, {"pidfd_send_signal", SYS_pidfd_send_signal},
    {"close_range", SYS_close_range}, {"memfd_create", SYS_memfd_create}, {"landlock", SYS_landlock_create_ruleset},
    {"fsopen", SYS_fsopen}, {"open_tree", SYS_open_tree}, {"move_mount", SYS_move_mount}, {"mount_setattr", SYS_mount_setattr},
    {"keyctl", SYS_keyctl}, {"statx", SYS_statx}, {"renameat2", SYS_renameat2}, {"copy_file_range", SYS_copy_file_range},
    {"seccomp", SYS_seccomp}, {"setns", SYS_setns},
};
/* clang-format on */

static int number_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (STREQ(calls[i].name, name))
            return calls[i].nr;
    return -1;
}

int main(int argc, char **argv)
{
    struct sock_filter f[2 * CALLS_MAX + 2];
    struct sock_fprog prog = {.filter = f};
    char *rest = argc > 3 ? argv[1] : NULL, *name;

    f[prog.len++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    while ((name = strsep(&rest, ",")) && prog.len < 2 * CALLS_MAX) {
        int nr = number_of(name);

        if (nr < 0)
            return fprintf(stderr, "deny-syscall: '%s' is not in its table\n", name), 2;
        f[prog.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1);
        f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    }
    f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (argc < 4 || !STREQ(argv[2], "--"))
        return fprintf(stderr, "usage: deny-syscall NAME[,NAME...] -- COMMAND...\n"), 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0) {
        perror("deny-syscall");
        return 2;
    }
    execv(argv[3], argv + 3);
    perror(argv[3]);
    return 127;
}
