/*
 * The watch of supervisor/shim/kernel-memory.c, for a container whose processes are on this
 * machine: neither the engine nor its memory limit bounds netlink, or the packets that TCP accepts
 * over its limit on cgroup v1.
 *
 * First the live commands are killed, with the cause `oom`. What is over the limit at the next
 * check belongs to processes that commands left behind: then every process of the container except
 * its pid 1 is killed, also the guest of a command that began meanwhile.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/os/cgroup.h"
#include "lib/os/netlink-memory.h"
#include "lib/os/pidfd.h"
#include "supervisor/relay/relay.h"

enum { SHARE_DIVISOR = 2, CHILDREN_MAX = 64 << 10 };

#define CHECK_INTERVAL (USEC_PER_SEC / 4)

/* 0: it cannot be read. */
static ino_t kernel_memory_pid_namespace(int pid)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

/* The processes are found by their pid namespace: Podman's conmon has the container's id in the
 * name of its cgroup too. As long as pid 1 lives, its number belongs to no other process. */
static void kernel_memory_kill_all(const struct relay *r, int init)
{
    const ino_t inside = kernel_memory_pid_namespace(r->sup.pid);
    _cleanup_closedir_ DIR *proc = NULL;
    const struct dirent *e;

    if (!inside || pidfd_signal(init, 0) < 0)
        return;
    proc = opendir("/proc");
    while (proc && (e = readdir(proc))) {
        _cleanup_close_ int pidfd = -1;
        uint32_t pid;

        if (parse_u32(e->d_name, 2, INT_MAX, &pid, NULL) >= 0 && (int)pid != r->sup.pid &&
            pidfd_open_pid((pid_t)pid, &pidfd, NULL) >= 0 &&
            kernel_memory_pid_namespace((int)pid) == inside)
            pidfd_signal(pidfd, SIGKILL);
    }
}

static void kernel_memory_kill(struct relay *r, int init, uint64_t held)
{
    char text[2][FORMAT_MAX];

    log_warn("sandbox %s: kernel memory in socket queues (%s) is over half of the memory limit "
             "(%s): killing all its %s",
             r->plan.sandbox_id, format_size(held, text[0]), format_size(r->plan.memory, text[1]),
             r->memory_over ? "processes" : "commands");
    for (struct supervised_exec *x = r->sup.execs; x; x = x->next)
        if (exec_is_live(x))
            exec_kill(x, END_OOM);
    if (r->memory_over)
        kernel_memory_kill_all(r, init);
    r->memory_over = !r->memory_over;
}

/* Whether commands have left processes behind, which are children of pid 1 now. */
static bool kernel_memory_has_leftovers(const struct relay *r)
{
    _cleanup_free_ char *children = NULL;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", r->sup.pid, r->sup.pid);
    return file_read(AT_FDCWD, path, CHILDREN_MAX, &children, NULL, NULL) < 0 || *children;
}

void relay_memory_watch(struct relay *r)
{
    if (r->memory_check_at == DEADLINE_NEVER && r->here && r->plan.memory &&
        !(r->plan.unenforced & LIMIT_MEMORY))
        r->memory_check_at = time_mono() + CHECK_INTERVAL;
}

void relay_memory_check(struct relay *r, uint64_t now)
{
    _cleanup_close_ int init = -1;
    uint64_t held;

    r->memory_check_at = DEADLINE_NEVER;
    if (r->sup.gone || pidfd_open_pid(r->sup.pid, &init, NULL) < 0 ||
        !pidfd_in_cgroup(init, r->sup.pid, r->plan.container))
        return; /* pid 1 has ended, and its number may belong to another process */
    held = netlink_memory(r->sup.pid) + cgroup_sockets_of(r->sup.pid);
    if (held <= r->plan.memory / SHARE_DIVISOR)
        r->memory_over = false;
    else if (r->sup.state != SUP_PAUSED) /* frozen processes do not die */
        kernel_memory_kill(r, init, held);
    if (r->memory_over || execs_live(&r->sup) || kernel_memory_has_leftovers(r))
        r->memory_check_at = now + CHECK_INTERVAL;
}
