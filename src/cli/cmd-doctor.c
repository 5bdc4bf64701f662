/* ripcord doctor: checks this machine. It runs the daemon's program with --doctor and needs no
 * running daemon. */
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "client/start.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

extern char **environ;

enum { DOCTOR_ANSWER_MAX = 1 << 20 };

static int read_all(int fd, struct buf *ret, struct err *err)
{
    for (;;) {
        char *room = buf_reserve(ret, 4096);
        ssize_t n;

        if (!room)
            return err_set(err, ERR_LIMIT, "the output of 'ripcordd --doctor' is too long");
        n = fd_read_full(fd, room, 4096);
        if (n < 0)
            return err_sys(err, (int)-n, "read the output of 'ripcordd --doctor'");
        if (n == 0)
            return 0;
        buf_commit(ret, (size_t)n);
    }
}

static int spawn_doctor(const struct cli *cli, int out, pid_t *ret, struct err *err)
{
    _cleanup_free_ char *program = NULL;
    _cleanup_strv_ char **argv = NULL;
    posix_spawn_file_actions_t fa;
    int r = start_find_daemon(&program, err);

    if (r < 0)
        return r;
    strv_add(&argv, program);
    if (cli->root) {
        strv_add(&argv, "--root");
        strv_add(&argv, cli->root);
    }
    strv_add(&argv, "--doctor");
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
    r = posix_spawn(ret, program, &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    return r ? err_sys(err, r, "run '%s'", program) : 0;
}

static int ask(const struct cli *cli, json_t **ret, struct err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(DOCTOR_ANSWER_MAX);
    _cleanup_close_ int in = -1, out = -1;
    int fds[2], r, status = 0;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    in = fds[0];
    out = fds[1];
    r = spawn_doctor(cli, out, &pid, err);
    if (r < 0)
        return r;
    out = fd_close(out);
    r = read_all(in, &text, err);
    in = fd_close(in);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r < 0)
        return r;
    if (text.len == 0)
        return err_set(err, ERR_SYSTEM, "'ripcordd --doctor' printed nothing (exit status %d)",
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return json_parse("the output of 'ripcordd --doctor'", buf_data(&text), text.len, ret, err);
}

static void print_check(const json_t *check)
{
    const char *status = json_text_of(check, "status"), *fix = json_text_of(check, "fix");
    bool ok = status && STREQ(status, "ok"), warn = status && STREQ(status, "warn");

    printf("%s%-4s%s  ",
           output_color(stdout, ok     ? COLOR_GREEN
                                : warn ? COLOR_YELLOW
                                       : COLOR_RED),
           ok     ? "ok"
           : warn ? "warn"
                  : "fail",
           output_color(stdout, COLOR_NONE));
    output_text(stdout, json_text_of(check, "name"));
    fputs(": ", stdout);
    output_text(stdout, json_text_of(check, "detail"));
    putchar('\n');
    if (fix && *fix && !ok) {
        fputs("      fix: ", stdout);
        output_text(stdout, fix);
        putchar('\n');
    }
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *check;
    bool failed = false;
    size_t i;
    int r;

    (void)args;
    r = ask(cli, &doc, err);
    if (r < 0)
        return r;
    json_array_foreach (json_object_get(doc, "checks"), i, check) {
        const char *status = json_text_of(check, "status");

        failed |= !status || STREQ(status, "fail");
        if (!cli->json)
            print_check(check);
    }
    if (cli->json)
        output_json(doc);
    return failed ? err_code_exit(ERR_UNSUPPORTED) : 0;
}

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .summary = "check this machine and show how to fix problems",
    .usage = "doctor",
    .details = "Checks the kernel, namespaces, overlayfs, cgroups, seccomp and the engines. The "
               "daemon does not need to run. The exit status is 7 if a check fails.",
    .stop_after = -1,
    .run = run,
};
