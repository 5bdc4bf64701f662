/*
 * ports: the TCP sockets that listen inside, from the kernel's tables in /proc. The tables of
 * process 1 are those of the sandbox: in a container it is the guest, and the helper of
 * ripcord-shim, which has no process of its own in there, cannot use /proc/self.
 *
 * Who listens is found by the descriptors of the processes. The kernel shows only those of the
 * helper's user, and to a helper under Landlock none: then the process is left out.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/job.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum {
    LISTENERS_MAX = 1024,
    TABLE_MAX = 4 << 20, /* the kernel lists listening sockets first */
    LINE_MAX_SIZE = 512,
    DESCRIPTORS_MAX = 64 << 10, /* that are looked at, of all processes */
    TCP_LISTENING = 0x0a,       /* TCP_LISTEN of the kernel */
    COMMAND_SIZE = 17,          /* TASK_COMM_LEN and a line break */
};

struct files_listener {
    char address[INET6_ADDRSTRLEN];
    unsigned port;
    unsigned long long inode;
    uint32_t pid; /* 0: unknown */
};

struct files_listeners {
    struct files_task *job;
    struct files_listener *list; /* owned; room for LISTENERS_MAX */
    size_t n;
    bool cut; /* there are more */
};

/* Words of the address are in the byte order of the machine. */
static bool files_ports_address(const char *hex, char ret[static INET6_ADDRSTRLEN])
{
    size_t words = strlen(hex) / 8;
    uint32_t address[4];

    if (strlen(hex) != words * 8 || (words != 1 && words != 4))
        return false;
    for (size_t i = 0; i < words; i++)
        if (sscanf(hex + 8 * i, "%8x", &address[i]) != 1)
            return false;
    return inet_ntop(words == 1 ? AF_INET : AF_INET6, address, ret, INET6_ADDRSTRLEN);
}

/* sl: local remote state queues timer retransmits uid timeout inode … */
static bool files_ports_parse_line(const char *line, struct files_listener *ret)
{
    char local[33];
    unsigned state;

    *ret = (struct files_listener){.port = 0};
    return sscanf(line, " %*d: %32[0-9A-Fa-f]:%4x %*[^ ] %2x %*s %*s %*s %*s %*s %llu", local,
                  &ret->port, &state, &ret->inode) == 4 &&
           state == TCP_LISTENING && files_ports_address(local, ret->address);
}

/* Several sockets may share a port (SO_REUSEPORT). */
static bool files_ports_is_listed(const struct files_listeners *l, const struct files_listener *one)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i].port == one->port && STREQ(l->list[i].address, one->address))
            return true;
    return false;
}

static void files_ports_take_line(struct files_listeners *l, const char *line)
{
    struct files_listener one;

    if (!files_ports_parse_line(line, &one) || files_ports_is_listed(l, &one))
        return;
    if (l->n == LISTENERS_MAX)
        l->cut = true;
    else
        l->list[l->n++] = one;
}

/* Without IPv6 the kernel has only one table. */
static int files_ports_read_table(struct files_listeners *l, const char *path, bool required,
                                  struct err *err)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[LINE_MAX_SIZE];
    size_t bytes = 0;

    if (!f)
        return required ? err_sys(err, errno, "open '%s'", path) : 0;
    while (bytes < TABLE_MAX && fgets(line, sizeof(line), f)) {
        bytes += strlen(line);
        files_ports_take_line(l, line);
    }
    l->cut |= bytes >= TABLE_MAX;
    return 0;
}

/* ---- who listens ---- */

static void files_ports_match(struct files_listeners *l, unsigned long long inode, uint32_t pid)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->list[i].inode == inode && !l->list[i].pid)
            l->list[i].pid = pid;
}

static void files_ports_match_descriptor(struct files_listeners *l, int folder, const char *name,
                                         uint32_t pid)
{
    unsigned long long inode;
    char target[64];
    ssize_t n = readlinkat(folder, name, target, sizeof(target) - 1);

    if (n < 0)
        return;
    target[n] = '\0';
    if (sscanf(target, "socket:[%llu]", &inode) == 1)
        files_ports_match(l, inode, pid);
}

static int files_ports_match_process(struct files_listeners *l, uint32_t pid, size_t *looked,
                                     struct err *err)
{
    _cleanup_closedir_ DIR *fds = NULL;
    const struct dirent *e;
    char path[32];

    snprintf(path, sizeof(path), "/proc/%u/fd", pid);
    fds = opendir(path);
    while (fds && *looked < DESCRIPTORS_MAX && (e = readdir(fds))) {
        int r = files_tick(l->job, err);

        if (r < 0)
            return r;
        (*looked)++;
        files_ports_match_descriptor(l, dirfd(fds), e->d_name, pid);
    }
    return 0;
}

static int files_ports_find_processes(struct files_listeners *l, struct err *err)
{
    _cleanup_closedir_ DIR *proc = l->n ? opendir("/proc") : NULL;
    const struct dirent *e;
    size_t looked = 0;
    uint32_t pid;

    while (proc && looked < DESCRIPTORS_MAX && (e = readdir(proc))) {
        int r = 0;

        if (parse_u32(e->d_name, 1, INT32_MAX, &pid, NULL) >= 0)
            r = files_ports_match_process(l, pid, &looked, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The name that the process gave itself. */
static void files_ports_put_command(struct files_task *j, uint32_t pid)
{
    char path[32], name[COMMAND_SIZE];
    _cleanup_close_ int fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%u/comm", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, name, sizeof(name));
    if (n > 0)
        files_put_bytes(&j->out, FILES_TAG_COMMAND, name, (size_t)n - (name[n - 1] == '\n'));
}

static int files_ports_send(struct files_listeners *l, struct err *err)
{
    struct files_task *j = l->job;

    for (size_t i = 0; i < l->n; i++) {
        const struct files_listener *one = &l->list[i];
        int r;

        files_answer(j, FILES_ITEM);
        files_put_u64(&j->out, FILES_TAG_PORT, one->port);
        files_put_str(&j->out, FILES_TAG_ADDRESS, one->address);
        if (one->pid) {
            files_put_u64(&j->out, FILES_TAG_PID, one->pid);
            files_ports_put_command(j, one->pid);
        }
        r = files_send(j, err);
        if (r < 0)
            return r;
    }
    files_answer(j, FILES_DONE);
    files_put_flag(&j->out, FILES_TAG_CUT, l->cut);
    return files_send(j, err);
}

static int files_ports_by_number(const void *a, const void *b)
{
    const struct files_listener *x = a, *y = b;

    return x->port != y->port ? (x->port > y->port) - (x->port < y->port)
                              : strcmp(x->address, y->address);
}

int files_ports(struct files_task *j, struct err *err)
{
    _cleanup_free_ struct files_listener *list = xcalloc(LISTENERS_MAX, sizeof(*list));
    struct files_listeners l = {.job = j, .list = list};
    int r = files_ports_read_table(&l, "/proc/1/net/tcp", true, err);

    if (r < 0)
        return r;
    r = files_ports_read_table(&l, "/proc/1/net/tcp6", false, err);
    if (r < 0)
        return r;
    qsort(l.list, l.n, sizeof(*l.list), files_ports_by_number);
    r = files_ports_find_processes(&l, err);
    return r < 0 ? r : files_ports_send(&l, err);
}
