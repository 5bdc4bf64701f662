/*
 * Work that must be done from inside the sandbox but is not a command: dialling a port, copying
 * files, file operations of the API. A job is a forked helper. It enters only the namespaces that
 * it needs (never the pid namespace, so no process inside sees it), becomes the sandbox's user if
 * it touches files, gives up every privilege, does its work and sends back one message. The helper
 * has read hostile bytes by then, so the shim parses that message and writes a new one for the
 * daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/files.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"
#include "lib/os/dial.h"
#include "lib/os/landlock.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "supervisor/shim/confined.h"
#include "supervisor/shim/enter.h"
#include "supervisor/shim/identity.h"
#include "supervisor/shim/shim.h"

enum {
    JOBS_MAX = 64,
    JOB_FD_SOCK = 3,
    JOB_FD_ARG = 4,
    JOB_FD_SPARE = 10,
    SINK_SIZE = 256 << 10,
};

struct job_spec {
    int namespaces;
    int fd;                      /* the tar stream, or -1 */
    const struct sup_copy *copy; /* NULL for a dial and for files */
    const char *path;            /* of the copy, inside */
    bool files;                  /* an operation of files/files.h, by: */
    const char *user;            /* NULL: the sandbox's */
    struct tree_rules rules;     /* of a copy into the sandbox; filled inside */
    uint16_t port;
    int (*run)(const struct job_spec *spec, struct tree_stats *stats, int *ret_fd, struct err *err);
};

struct shim_job {
    struct shim_job *next;
    struct shim *shim;
    struct loop_source src; /* the helper's one message */
    int pidfd;
    struct supervisor_peer *peer; /* NULL once it has disconnected */
    uint64_t seq;
};

/* ---- in the helper ---- */

static int shim_job_run_dial(const struct job_spec *spec, struct tree_stats *stats _unused_,
                             int *ret_fd, struct err *err)
{
    return dial_inside(spec->port, ret_fd, err);
}

/*
 * Collects output before it is written: many small files need few writes, and a copy that fails
 * early has sent nothing yet, so that the daemon can still answer with the error.
 */
struct job_sink {
    int fd;
    size_t len;
    char data[SINK_SIZE];
};

static int shim_job_sink_flush(struct job_sink *s)
{
    int r = fd_write_all(s->fd, s->data, s->len);

    s->len = 0;
    return r;
}

static int shim_job_sink_write(void *arg, const void *data, size_t len)
{
    struct job_sink *s = arg;

    while (len) {
        size_t n = MIN(len, sizeof(s->data) - s->len);
        int r;

        memcpy(s->data + s->len, data, n);
        s->len += n;
        data = (const char *)data + n;
        len -= n;
        r = s->len == sizeof(s->data) ? shim_job_sink_flush(s) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int shim_job_run_copy_out(const struct job_spec *spec, struct tree_stats *stats,
                                 int *ret_fd _unused_, struct err *err)
{
    _cleanup_free_ struct job_sink *sink = xnew0(struct job_sink);
    int r;

    sink->fd = spec->fd;
    r = tree_to_tar(spec->path, shim_job_sink_write, sink, stats, err);
    if (r < 0)
        return r;
    r = shim_job_sink_flush(sink);
    return r < 0 ? err_sys(err, -r, "write archive") : 0;
}

static ssize_t shim_job_read_in(void *arg, void *data, size_t len)
{
    ssize_t n;

    do
        n = read(*(int *)arg, data, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int shim_job_run_copy_in(const struct job_spec *spec, struct tree_stats *stats,
                                int *ret_fd _unused_, struct err *err)
{
    int fd = spec->fd;

    return tree_from_tar(spec->path, &spec->rules, shim_job_read_in, &fd, stats, err);
}

static ssize_t shim_job_files_read(void *arg, void *data, size_t len)
{
    const struct job_sink *s = arg;
    ssize_t n;

    do
        n = read(s->fd, data, len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int shim_job_files_flush(void *arg)
{
    return shim_job_sink_flush(arg);
}

/* The daemon sends nothing while it waits for an answer, so readable means that it has closed. */
static int shim_job_files_wait(void *arg, int fd, int timeout_ms)
{
    const struct job_sink *s = arg;
    struct pollfd p[] = {{.fd = s->fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int n;

    do
        n = poll(p, 2, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n < 0 || p[0].revents)
        return -EPIPE;
    return n > 0;
}

static int shim_job_run_files(const struct job_spec *spec, struct tree_stats *stats _unused_,
                              int *ret_fd _unused_, struct err *err)
{
    _cleanup_free_ struct job_sink *sink = xnew0(struct job_sink);
    const struct files_io io = {shim_job_files_read, shim_job_sink_write, shim_job_files_flush,
                                shim_job_files_wait, sink};

    sink->fd = spec->fd;
    return files_serve(&io, err);
}

static int shim_job_become_user(const struct shim *s, const char *who, struct err *err)
{
    struct user user;
    int r;

    if (!who)
        who = s->plan.user;
    r = user_resolve(GUARD("copies by the user") ? who : "0", &user, err);
    return r < 0 ? r : identity_become(&s->plan, &user, err);
}

/* owner NULL: the writer. */
static struct tree_rules shim_job_rules_of(const struct sup_copy *copy, const struct user *owner)
{
    return (struct tree_rules){
        .through = !(copy->flags & SUP_COPY_ATOMIC),
        .parents = copy->flags & SUP_COPY_PARENTS,
        .has_owner = owner,
        .uid = owner ? owner->uid : 0,
        .gid = owner ? owner->gid : 0,
        .has_mode = copy->flags & SUP_COPY_MODE,
        .mode = (mode_t)copy->mode,
    };
}

/* After shim_job_become_user(): what that user may not do is refused before a file is touched. */
static int shim_job_make_rules(struct job_spec *spec, struct err *err)
{
    const struct sup_copy *copy = spec->copy;
    struct user owner = {0};
    int r = copy->owner ? user_resolve_owner(copy->owner, &owner, err) : 0;

    if (r < 0)
        return r;
    spec->path = copy->path;
    spec->rules = shim_job_rules_of(copy, copy->owner ? &owner : NULL);
    return 0;
}

/* Without namespaces: the user and the Landlock domain of a command. */
static int shim_job_enter_confined(const struct shim *s, struct job_spec *spec, struct err *err)
{
    struct user user;
    int r = confined_user(s, spec->copy ? spec->copy->user : NULL, &user, err);

    if (r >= 0 && spec->copy && spec->copy->owner)
        r = confined_user(s, spec->copy->owner, &user, err);
    if (r < 0)
        return r;
    r = confined_become(&s->plan, err);
    if (r < 0 || !spec->copy)
        return r;
    spec->path = confined_path(s, spec->copy->path); /* as long as the process */
    r = GUARD("copies inside") ? confined_enter(s, err) : 0;
    if (r < 0)
        return r;
    spec->rules = shim_job_rules_of(spec->copy, NULL);
    return 0;
}

static int shim_job_enter(const struct shim *s, struct job_spec *spec, struct err *err)
{
    int r;

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_sys(err, errno, "make the helper non-dumpable");
    if (s->confined)
        return shim_job_enter_confined(s, spec, err);
    r = GUARD("copies inside") ? enter_sandbox(s, spec->namespaces, NULL, err) : 0;
    if (r < 0)
        return r;
    if (spec->files)
        return shim_job_become_user(s, spec->user, err);
    if (spec->copy) {
        r = shim_job_become_user(s, spec->copy->user, err);
        return r < 0 ? r : shim_job_make_rules(spec, err);
    }
    r = caps_bound(CAPS_NONE, err);
    if (r < 0)
        return r;
    return caps_set(CAPS_NONE, err);
}

/* The helper has copies of all of the shim's descriptors (journals, peers, the plan). It keeps only
 * these two. */
static int shim_job_keep_descriptors(int *sock, int *arg, struct err *err)
{
    int high_sock = fcntl(*sock, F_DUPFD_CLOEXEC, JOB_FD_SPARE);
    int high_arg = *arg >= 0 ? fcntl(*arg, F_DUPFD_CLOEXEC, JOB_FD_SPARE) : -1;

    if (high_sock < 0 || dup3(high_sock, JOB_FD_SOCK, O_CLOEXEC) < 0 ||
        (*arg >= 0 && (high_arg < 0 || dup3(high_arg, JOB_FD_ARG, O_CLOEXEC) < 0)))
        return err_sys(err, errno, "arrange descriptors");
    syscall(SYS_close_range, *arg >= 0 ? JOB_FD_ARG + 1U : JOB_FD_SOCK + 1U, ~0U, 0);
    *sock = JOB_FD_SOCK;
    *arg = *arg >= 0 ? JOB_FD_ARG : -1;
    return 0;
}

static int shim_job_work(const struct shim *s, int *sock, struct job_spec *spec,
                         struct tree_stats *stats, int *ret_fd, struct err *err)
{
    int r;

    r = shim_job_enter(s, spec, err);
    if (r < 0)
        return r;
    r = shim_job_keep_descriptors(sock, &spec->fd, err);
    if (r < 0)
        return r;
    r = landlock_confine(spec->namespaces & CLONE_NEWNS ? "/" : NULL, spec->port, err);
    if (r < 0)
        return r;
    r = spec->files ? files_limit(err) : 0;
    if (r < 0)
        return r;
    r = spec->files ? confine_files_helper(err) : confine_helper(err);
    if (r < 0)
        return r;
    return spec->run(spec, stats, ret_fd, err);
}

_noreturn_ static void shim_job_main(const struct shim *s, int sock, struct job_spec *spec)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct tree_stats stats = {0};
    struct sup_writer w;
    int fd = -1, r;

    umask(022);
    signal(SIGPIPE, SIG_IGN);
    r = shim_job_work(s, &sock, spec, &stats, &fd, &err);
    sup_begin(&w, SUP_RESULT, 0);
    if (r < 0)
        sup_put_err(&w, &err);
    sup_put_stat(&w, "entries", stats.entries);
    sup_put_stat(&w, "bytes", stats.bytes);
    sup_put_stat(&w, "skipped", stats.skipped);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(sock, buf_data(&w.buf), w.buf.len, &fd, r >= 0 && fd >= 0, 0);
    _exit(0);
}

/* ---- in the shim ---- */

static void shim_job_free(struct shim_job *j)
{
    struct shim_job **at = &j->shim->jobs;

    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    source_close(&j->shim->sup, &j->src);
    if (j->pidfd >= 0) {
        pidfd_signal(j->pidfd, SIGKILL); /* its message has arrived, or nobody waits for it */
        pidfd_reap(j->pidfd, true, NULL, NULL);
        fd_close(j->pidfd);
    }
    free(j);
}

/* Passes on only numbers, and only those that we know. */
static void shim_job_pass_stats(struct sup_writer *w, const void *packet, size_t len)
{
    static const char *const known[] = {"entries", "bytes", "skipped"};
    struct sup_reader r;
    struct sup_value v;

    if (sup_read(&r, packet, len, NULL) < 0)
        return;
    while (sup_next(&r, &v, NULL) > 0)
        for (size_t i = 0; v.tag == SUP_TAG_STAT && i < ARRAY_SIZE(known); i++) {
            size_t n = strlen(known[i]);

            if (strncmp(v.data, known[i], n) == 0 && v.data[n] == '=')
                sup_put_stat(w, known[i], strtoull(v.data + n + 1, NULL, 10));
        }
}

static void shim_job_on_message(struct loop_source *src, uint32_t events _unused_)
{
    struct shim_job *j = container_of(src, struct shim_job, src);
    _cleanup_err_ struct err err = ERR_INIT;
    char packet[16 << 10];
    struct sup_writer w;
    size_t n_fds = 1;
    _cleanup_close_ int fd = -1;
    ssize_t n;

    n = fd_recv(j->src.fd, packet, sizeof(packet), &fd, &n_fds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n <= 0)
        err_set(&err, ERR_ENGINE, "the helper inside the sandbox ended without an answer");
    else
        sup_read_err(packet, (size_t)n, &err);
    if (j->peer) {
        sup_begin(&w, SUP_RESULT, j->seq);
        if (err.code)
            sup_put_err(&w, &err);
        if (n > 0)
            shim_job_pass_stats(&w, packet, (size_t)n);
        peer_send(j->peer, &w, TAKE_FD(fd));
    }
    shim_job_free(j);
}

static int shim_job_start(struct supervisor_peer *p, uint64_t seq, struct job_spec *spec,
                          struct err *err)
{
    struct shim *s = shim_of(p->sup);
    struct shim_job *j;
    size_t live = 0;
    int pair[2], r;
    pid_t pid;

    for (j = s->jobs; j; j = j->next)
        live++;
    if (live >= JOBS_MAX)
        return err_set(err, ERR_LIMIT, "this sandbox already has %d copies and dials in progress",
                       JOBS_MAX);
    if (s->sup.state != SUP_RUNNING)
        return err_set(err, ERR_CONFLICT, "the sandbox is not running");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    j = xnew0(struct shim_job);
    *j = (struct shim_job){
        .next = s->jobs, .shim = s, .src = {.fd = -1}, .pidfd = -1, .peer = p, .seq = seq};
    s->jobs = j;
    pid = ns_clone(0, -1, &j->pidfd);
    if (pid == 0)
        shim_job_main(s, pair[1], spec);
    fd_close(pair[1]);
    r = pid < 0 ? err_sys(err, -pid, "start a helper")
                : source_add(&s->sup, &j->src, pair[0], EPOLLIN, shim_job_on_message, err);
    if (r < 0) {
        if (j->src.fd < 0)
            fd_close(pair[0]);
        shim_job_free(j);
    }
    return r < 0 ? r : 1;
}

/* Loopback belongs to the whole machine: other ports lead to services outside. */
static int shim_job_check_port(const struct shim *s, uint64_t port, struct err *err)
{
    const struct plan *p = &s->plan;

    for (size_t i = 0; i < p->n_ports; i++)
        if (port >= p->ports[i].first && port <= p->ports[i].last)
            return 0;
    err_set(err, ERR_UNSUPPORTED, "port %llu does not belong to the sandbox (isolation 'confined')",
            (unsigned long long)port);
    if (!p->n_ports)
        return err_hint(err, "Create the sandbox with --ports.");
    return err_hint(err,
                    "Let the service listen on port 0 or on a port from %u to %u, or create "
                    "the sandbox with --ports.",
                    p->ports[0].first, p->ports[0].last);
}

int job_dial(struct supervisor_peer *p, uint64_t seq, uint64_t port, struct err *err)
{
    int r = shim_of(p->sup)->confined ? shim_job_check_port(shim_of(p->sup), port, err) : 0;
    struct job_spec spec = {.namespaces = CLONE_NEWUSER | CLONE_NEWNET,
                            .fd = -1,
                            .run = shim_job_run_dial,
                            .port = (uint16_t)port};

    return r < 0 ? r : shim_job_start(p, seq, &spec, err);
}

int job_copy(struct supervisor_peer *p, uint64_t seq, const struct sup_copy *copy, int fd,
             struct err *err)
{
    struct job_spec spec = {
        .namespaces = CLONE_NEWUSER | CLONE_NEWNS,
        .fd = fd,
        .copy = copy,
        .run = copy->into ? shim_job_run_copy_in : shim_job_run_copy_out,
    };

    return shim_job_start(p, seq, &spec, err);
}

/* Landlock sees neither chmod nor chown nor inotify, so without namespaces a path of the request
 * could reach files of the machine. */
int job_files(struct supervisor_peer *p, uint64_t seq, const char *user, int fd, struct err *err)
{
    struct job_spec spec = {
        .namespaces = CLONE_NEWUSER | CLONE_NEWNS,
        .fd = fd,
        .files = true,
        .user = user,
        .run = shim_job_run_files,
    };

    if (shim_of(p->sup)->confined) {
        err_set(err, ERR_UNSUPPORTED, "a sandbox with isolation 'confined' has no file operations");
        return err_hint(err, "Copy files as application/x-tar, or with `ripcord cp`.");
    }
    return shim_job_start(p, seq, &spec, err);
}

void jobs_forget(struct supervisor *sup, const struct supervisor_peer *p)
{
    for (struct shim_job *j = shim_of(sup)->jobs; j; j = j->next)
        if (j->peer == p)
            j->peer = NULL;
}

void jobs_end(struct shim *s)
{
    while (s->jobs)
        shim_job_free(s->jobs);
}
