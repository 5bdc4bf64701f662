#include "daemon/engine/native/program.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/xalloc.h"

enum { OUTPUT_MAX = 16 << 10, ANSWER_MAX = 1 << 20 };

const char *program_find(const char *name)
{
    static const char *const folders[] = {"/usr/sbin", "/usr/bin",        "/sbin",
                                          "/bin",      "/usr/local/sbin", "/usr/local/bin"};
    static _Thread_local char path[128];

    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", folders[i], name);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

/* ---- at work ---- */

static int native_program_start(struct process_spec *s, bool errors, struct program *ret,
                                struct err *err)
{
    int ends[2], r;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe for '%s'", s->argv[0]);
    ret->name = s->argv[0];
    ret->out = ends[0];
    s->fds[s->n_fds++] = (struct process_fd){ends[1], STDOUT_FILENO};
    s->fds[s->n_fds++] = (struct process_fd){errors ? ends[1] : -1, STDERR_FILENO};
    r = process_start(s, &ret->pid);
    fd_close(ends[1]);
    if (!r)
        return 0;
    ret->pid = 0;
    return err_sys(err, r, "start '%s'", s->path);
}

int program_start(const char *libexec, const char *const *argv, const char *const *env,
                  const struct process_fd *fds, size_t n_fds, struct program *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", libexec, argv[0]);
    struct process_spec s = {.path = path, .argv = argv, .env = env, .n_fds = n_fds};
    int r;

    assert(n_fds + 2 <= PROCESS_FDS_MAX);
    memcpy(s.fds, fds, n_fds * sizeof(*fds));
    r = native_program_start(&s, false, ret, err);
    return r < 0 ? err_hint(err, "Install ripcord again: %s must be beside ripcordd.", argv[0]) : 0;
}

/* False: the deadline has passed. */
static bool program_collect(int fd, struct buf *out, const struct deadline *by)
{
    char chunk[4096];

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, deadline_ms(by));
        ssize_t len;

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        len = read(fd, chunk, sizeof(chunk));
        if (len <= 0)
            return true;
        (void)!buf_append(out, chunk, MIN((size_t)len, out->max - out->len));
    }
}

int program_finish(struct program *p, const struct deadline *by, struct buf *out, int *ret_status,
                   struct err *err)
{
    if (!program_collect(p->out, out, by))
        return err_set(err, ERR_TIMEOUT, "%s did not end in time", p->name);
    *ret_status = process_wait(p->pid);
    p->pid = 0;
    p->out = fd_close(p->out);
    return 0;
}

int program_answer(struct program *p, const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_buf_ struct buf out = BUF_INIT(ANSWER_MAX);
    _cleanup_json_ json_t *doc = NULL;
    int status = 0, r;

    r = program_finish(p, by, &out, &status, err);
    if (r < 0)
        return r;
    if (WIFSIGNALED(status))
        return err_set(err, ERR_SYSTEM, "%s was ended by signal %d", p->name, WTERMSIG(status));
    r = json_parse(p->name, buf_data(&out), out.len, &doc, err);
    if (r < 0)
        return r;
    if (status)
        return json_to_err(doc, err);
    *ret = buf_steal(&out);
    return 0;
}

int program_end(struct program *p)
{
    int status = 0;

    if (p->pid > 0) {
        kill(p->pid, SIGKILL);
        status = process_wait(p->pid);
    }
    p->pid = 0;
    p->out = fd_close(p->out);
    return status;
}

/* ---- the machine's own ---- */

static int program_judge(const char *name, int status, struct buf *out, struct err *err)
{
    while (out->len && buf_data(out)[out->len - 1] == '\n')
        buf_truncate(out, out->len - 1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFSIGNALED(status))
        return err_set(err, ERR_SYSTEM, "%s was ended by signal %d", name, WTERMSIG(status));
    return err_set(err, ERR_SYSTEM, "%s failed with status %d: %s", name, WEXITSTATUS(status),
                   out->len ? buf_data(out) : "(no output)");
}

int program_run(const char *const *argv, const char *input, const struct deadline *by,
                char **ret_output, struct err *err)
{
    static const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    _cleanup_buf_ struct buf out = BUF_INIT(OUTPUT_MAX);
    struct process_spec s = {.path = program_find(argv[0]), .argv = argv, .env = env, .n_fds = 1};
    _cleanup_program_ struct program p = PROGRAM_INIT;
    _cleanup_close_ int in = -1;
    int status = 0, r;

    if (!s.path)
        return err_set(err, ERR_UNSUPPORTED, "the program '%s' is not installed", argv[0]);
    /* The input is a memfd, so that nobody has to write it while the output must be read. */
    r = memfd_sealed("input", input ? input : "", input ? strlen(input) : 0, &in, err);
    if (r < 0)
        return r;
    s.fds[0] = (struct process_fd){in, STDIN_FILENO};
    r = native_program_start(&s, true, &p, err);
    if (r < 0)
        return r;
    r = program_finish(&p, by, &out, &status, err);
    if (r < 0)
        return r;
    r = program_judge(argv[0], status, &out, err);
    if (r < 0)
        return r;
    if (ret_output)
        *ret_output = buf_steal(&out);
    return 0;
}
