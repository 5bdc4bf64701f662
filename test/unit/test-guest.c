/*
 * The real ripcord-guest, in a pid namespace of its own (guest-fixture.h).
 */
#include "tap.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../helpers/guest-prey.h"
#include "guest-fixture.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"
#include "lib/os/pidfd.h"

#define NEED_BOX(b)                                                                                \
    _cleanup_gbox_ struct gbox b = {0};                                                            \
    if (gbox_unavailable())                                                                        \
        SKIP(gbox_unavailable());                                                                  \
    CHECK(gbox_open(&b, NULL))

/* ---- short forms ---- */

static const struct guest_spec *shell(const char *script, uint32_t flags)
{
    static char *argv[4];
    static struct guest_spec spec;

    argv[0] = (char *)"sh";
    argv[1] = (char *)"-c";
    argv[2] = (char *)script;
    spec = (struct guest_spec){.argv = argv, .flags = flags, .rows = 24, .cols = 80};
    return &spec;
}

static const struct guest_spec *prey(const struct gbox *b, const char *deed, const char *arg)
{
    static char *argv[4], path[96];
    static struct guest_spec spec;

    snprintf(path, sizeof(path), "%s/prey", b->dir);
    argv[0] = path;
    argv[1] = (char *)deed;
    argv[2] = (char *)arg;
    spec = (struct guest_spec){.argv = argv};
    return &spec;
}

/* Starts the spec and takes what comes to the end. */
static bool run(const struct gbox *b, const struct guest_spec *spec, struct gend *end)
{
    static const char *const args[] = {"exec", NULL};
    _cleanup_buf_ struct buf frames = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;

    return gconn_open(&l, b, args) &&
           guest_put_spec(&frames, spec, GUEST_VERSION_MINOR, NULL) == 0 &&
           gconn_send(&l, &frames) && gconn_finish(&l, end);
}

/* A path below `dir`, good for the next few calls. */
static const char *at(const char *dir, const char *name)
{
    static char ring[4][128];
    static unsigned next;
    char *path = ring[next++ % ARRAY_SIZE(ring)];

    snprintf(path, sizeof(ring[0]), "%s/%s", dir, name);
    return path;
}

static bool says(const struct buf *b, const char *text)
{
    if (STREQ(buf_data(b), text))
        return true;
    printf("# '%s' is not '%s'\n", buf_data(b), text);
    return false;
}

/* Waits for a line of the command's output. */
static bool await_line(struct gconn *l, const char *text)
{
    struct guest_frame f;

    while (gconn_next(l, &f) == 1)
        if (f.type == GUEST_STDOUT)
            return f.length == strlen(text) && memcmp(f.data, text, f.length) == 0;
    return false;
}

static bool send_signal(const struct gconn *l, int sig)
{
    _cleanup_buf_ struct buf b = BUF_INIT(64);

    return guest_put_signal(&b, sig) == 0 && gconn_send(l, &b);
}

/* ---- commands and their ends ---- */

TEST(output_and_exit_code)
{
    NEED_BOX(b);
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(run(&b, shell("echo out; echo err >&2; exit 3", 0), &e));
    CHECK(e.last == GUEST_EXIT && e.ex.status == 3 << 8);
    CHECK(says(&e.out, "out\n") && says(&e.err, "err\n"));
    CHECK(e.ex.flags == GUEST_EXIT_DRAINED && e.ex.stdout_bytes == 4 && e.ex.stderr_bytes == 4);
    CHECK(e.ex.max_rss > 0 && e.ex.cpu_usec < 10 * USEC_PER_SEC);
    CHECK(gbox_settles(&b, 1));
}

TEST(death_by_signal)
{
    NEED_BOX(b);
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(run(&b, shell("kill -SEGV $$", 0), &e));
    CHECK(e.last == GUEST_EXIT && (e.ex.status & 0x7f) == SIGSEGV);
}

TEST(what_a_command_inherits)
{
    NEED_BOX(b);
    char *env[] = {(char *)"A=b", (char *)"HOME=/mine", NULL};
    _cleanup_gend_ struct gend e = GEND_INIT, clear = GEND_INIT;
    struct guest_spec spec =
        *shell("grep -E '^Sig(Blk|Ign)|^NoNew' /proc/self/status | tr -d '\\t\\n';"
               "echo; ls /proc/self/fd | tr '\\n' ' '; echo $A $HOME; umask;"
               "set -- $(cat /proc/$$/stat); test $1 = $5 -a $1 = $6 && pwd;"
               "cat",
               0);

    spec.env = env;
    spec.cwd = (char *)"/usr/..";
    CHECK(run(&b, &spec, &e));
    CHECK(says(&e.out, "SigBlk:0000000000000000SigIgn:0000000000000000NoNewPrivs:1\n"
                       "0 1 2 3 b /mine\n0022\n/\n"));
    spec = *shell("env", GUEST_SPEC_ENV_CLEAR);
    CHECK(run(&b, &spec, &clear));
    CHECK(says(&clear.out, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
                           "PWD=/\n") ||
          !strstr(buf_data(&clear.out), "HOME"));
}

static enum err_code failure(const struct gbox *b, const struct guest_spec *spec, const char *words)
{
    _cleanup_gend_ struct gend e = GEND_INIT;

    if (!run(b, spec, &e) || e.last != GUEST_FAILED)
        return ERR_NONE;
    if (!strstr(e.failed.msg, words))
        printf("# '%s' lacks '%s'\n", e.failed.msg, words);
    return strstr(e.failed.msg, words) ? e.failed.code : ERR_CODE_MAX;
}

static void write_file(const struct gbox *b, const char *name, const char *text, mode_t mode)
{
    _cleanup_free_ char *path = xasprintf("%s/home/%s", b->dir, name);

    if (file_replace(AT_FDCWD, path, text, strlen(text), mode, false, NULL) < 0 ||
        chown(path, GBOX_UID, GBOX_UID) < 0)
        perror(path);
}

TEST(commands_that_do_not_start)
{
    NEED_BOX(b);
    _cleanup_free_ char *plain = xasprintf("%s/home/plain", b.dir);
    _cleanup_free_ char *absent = xasprintf("%s/home/absent", b.dir);
    char *argv[] = {(char *)"no-such-command", NULL};
    struct guest_spec spec = {.argv = argv};

    CHECK(failure(&b, &spec, "'no-such-command' not found") == ERR_NOT_FOUND);
    argv[0] = absent;
    CHECK(failure(&b, &spec, "/home/absent' not found") == ERR_NOT_FOUND);
    write_file(&b, "plain", "x", 0644);
    argv[0] = plain;
    CHECK(failure(&b, &spec, "cannot be run: Permission denied") == ERR_DENIED);
    argv[0] = (char *)"/usr";
    CHECK(failure(&b, &spec, "cannot be run: ") == ERR_DENIED);
    argv[0] = (char *)"true";
    spec.cwd = absent;
    CHECK(failure(&b, &spec, "/home/absent': No such file") == ERR_INVALID);
    CHECK(gbox_settles(&b, 1));
}

TEST(script_without_interpreter)
{
    NEED_BOX(b);
    _cleanup_free_ char *script = xasprintf("%s/home/script", b.dir);
    char *argv[] = {script, (char *)"a b", NULL};
    const struct guest_spec spec = {.argv = argv};
    _cleanup_gend_ struct gend e = GEND_INIT;

    write_file(&b, "script", "echo \"got $1\"\n", 0755);
    CHECK(run(&b, &spec, &e) && e.last == GUEST_EXIT && says(&e.out, "got a b\n"));
}

TEST(killed_before_it_runs)
{
    NEED_BOX(b);
    static const char *const args[] = {"exec", NULL};
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_open(&l, &b, args) && gconn_kill(&l, 0) && gconn_finish(&l, &e));
    CHECK(e.last == GUEST_FAILED && e.failed.code == ERR_CONFLICT);
}

/* ---- stdin ---- */

/* At most the credit under way, as a relay does it; `cat` sends everything back. */
TEST(stdin_by_credit)
{
    NEED_BOX(b);
    enum { TOTAL = 3 << 20, PIECE = 10000 };
    _cleanup_free_ char *data = xmalloc(TOTAL + 8), *back = xmalloc(TOTAL + 8);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    size_t sent = 0, acked = 0, got = 0;
    uint64_t state = 0;
    struct guest_frame f;

    prey_noise(&state, data, TOTAL);
    CHECK(gconn_run(&l, &b, shell("cat", GUEST_SPEC_STDIN)));
    for (;;) {
        while (sent < TOTAL && sent - acked + PIECE <= GUEST_CREDIT) {
            size_t n = MIN(TOTAL - sent, (size_t)PIECE);

            CHECK(gconn_stdin(&l, data + sent, n, sent + n == TOTAL));
            sent += n;
        }
        CHECK(gconn_next(&l, &f) == 1);
        if (f.type == GUEST_STDIN_ACK)
            acked += guest_get_u32(&f);
        if (f.type == GUEST_STDOUT) {
            CHECK(got + f.length <= TOTAL);
            memcpy(back + got, f.data, f.length);
            got += f.length;
        }
        if (f.type == GUEST_EXIT)
            break;
    }
    CHECK(acked == TOTAL && got == TOTAL && memcmp(data, back, TOTAL) == 0);
}

TEST(stdin_right_behind_the_spec)
{
    NEED_BOX(b);
    static const char *const args[] = {"exec", NULL};
    _cleanup_buf_ struct buf frames = BUF_INIT(GUEST_SPEC_WIRE_MAX);
    _cleanup_gconn_ struct gconn l = GCONN_INIT, empty = GCONN_INIT, early = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT, ee = GEND_INIT, x = GEND_INIT;

    CHECK(guest_put_spec(&frames, shell("cat; echo end", GUEST_SPEC_STDIN), GUEST_VERSION_MINOR,
                         NULL) == 0);
    CHECK(gconn_open(&l, &b, args) && gconn_send(&l, &frames) && gconn_stdin(&l, "abc", 3, true));
    CHECK(gconn_finish(&l, &e) && says(&e.out, "abcend\n") && e.acked == 3);
    CHECK(gconn_open(&empty, &b, args) && gconn_send(&empty, &frames));
    CHECK(gconn_stdin(&empty, NULL, 0, true) && gconn_finish(&empty, &ee));
    CHECK(says(&ee.out, "end\n"));
    CHECK(gconn_open(&early, &b, args) && gconn_stdin(&early, "abc", 3, false));
    CHECK(gconn_finish(&early, &x) && x.last == 0); /* before it: not by the rules */
}

TEST(unread_stdin)
{
    NEED_BOX(b);
    static char data[GUEST_CREDIT];
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("exec <&-; sleep 0.2; echo done", GUEST_SPEC_STDIN)));
    CHECK(gconn_stdin(&l, data, sizeof(data), false) && gconn_finish(&l, &e));
    CHECK(e.closed && e.acked == sizeof(data) && says(&e.out, "done\n"));
}

TEST(stdin_that_was_not_asked_for)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("cat; sleep 0.2; echo done", 0)));
    CHECK(gconn_stdin(&l, "abc", 3, true) && gconn_finish(&l, &e));
    CHECK(!e.closed && e.acked == 3 && says(&e.out, "done\n"));
}

/* With its pipe full and its credit used up, a KILL still gets through. */
TEST(kill_is_not_stuck_behind_stdin)
{
    NEED_BOX(b);
    static char data[GUEST_CREDIT];
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;
    struct guest_frame f;

    CHECK(gconn_run(&l, &b, shell("sleep 100", GUEST_SPEC_STDIN)));
    CHECK(gconn_stdin(&l, data, sizeof(data), false)); /* what the pipe holds */
    for (size_t acked = 0; acked < sizeof(data); acked += guest_get_u32(&f))
        CHECK(gconn_next(&l, &f) == 1 && f.type == GUEST_STDIN_ACK);
    CHECK(gconn_stdin(&l, data, sizeof(data), false)); /* what the guest holds */
    CHECK(gconn_kill(&l, 0) && gconn_finish(&l, &e));
    CHECK(e.last == GUEST_EXIT && e.ex.status == SIGKILL);
}

TEST(more_than_the_credit_is_cut_off)
{
    NEED_BOX(b);
    static char data[4 * GUEST_CREDIT];
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("setsid sleep 100 & sleep 100", GUEST_SPEC_STDIN)));
    (void)gconn_stdin(&l, data, sizeof(data), false);
    CHECK(gconn_finish(&l, &e) && e.last == 0);
    CHECK(gbox_settles(&b, 1));
}

/* ---- signals and terminals ---- */

TEST(signals_go_to_the_command)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b,
                    shell("trap 'echo usr' USR1; trap 'echo term; exit 7' TERM; echo ready;"
                          "while :; do sleep 0.05; done",
                          0)));
    CHECK(await_line(&l, "ready\n") && send_signal(&l, SIGUSR1) && await_line(&l, "usr\n"));
    CHECK(send_signal(&l, SIGTERM) && gconn_finish(&l, &e));
    CHECK(says(&e.out, "term\n") && e.ex.status == 7 << 8);
}

TEST(terminal)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;
    _cleanup_buf_ struct buf frames = BUF_INIT(64);

    CHECK(gconn_run(&l, &b,
                    shell("stty -echo; stty size; test -t 0 -a -t 1 -a -t 2 && read x;"
                          "stty size; echo \"$x\" >&2; cat /dev/tty",
                          GUEST_SPEC_TTY)));
    CHECK(await_line(&l, "24 80\r\n"));
    CHECK(guest_put_resize(&frames, 50, 132) == 0 && gconn_send(&l, &frames));
    CHECK(gconn_stdin(&l, "hi\n", 3, true)); /* the end of stdin is nothing to a terminal */
    CHECK(gconn_stdin(&l, "more\n\4", 6, false) && gconn_finish(&l, &e));
    CHECK(says(&e.out, "50 132\r\nhi\r\nmore\r\n") && e.err.len == 0);
    CHECK(e.acked == 9 && e.ex.status == 0 && e.ex.flags == GUEST_EXIT_DRAINED);
}

TEST(terminal_that_a_child_keeps)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    /* Its session has hung up, but to the master it is open: the grace decides. */
    CHECK(gconn_run(&l, &b, shell("trap '' HUP; sleep 5 & echo main", GUEST_SPEC_TTY)));
    CHECK(gconn_finish(&l, &e) && e.ex.flags == 0 && says(&e.out, "main\r\n"));
    gconn_hang_up(&l);
    pidfd_signal(b.init_pidfd, SIGKILL);
}

/* ---- killing ---- */

TEST(kill_takes_the_whole_tree)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b,
                    shell("trap '' TERM HUP; setsid sleep 100 & (setsid env -i sleep 100 &);"
                          "(sleep 100 &) ; echo ready; sleep 100",
                          0)));
    CHECK(await_line(&l, "ready\n") && gconn_kill(&l, 0) && gconn_finish(&l, &e));
    CHECK(e.last == GUEST_EXIT && e.ex.status == SIGKILL && e.ex.flags == GUEST_EXIT_DRAINED);
    CHECK(gbox_settles(&b, 1));
}

TEST(kill_of_a_fork_bomb)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT, other = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&other, &b, shell("exec sleep 100", 0)));
    CHECK(gconn_run(&l, &b, prey(&b, "bomb", "120")));
    for (int i = 0; i < 6000 && gbox_count(&b) < 100; i++)
        usleep(10000);
    CHECK(gconn_kill(&l, 0) && gconn_finish(&l, &e));
    CHECK(e.last == GUEST_EXIT && e.ex.status == SIGKILL);
    CHECK(gbox_settles(&b, 3)); /* pid 1, the other guest and its command */
    gconn_close(&other);
    CHECK(gbox_settles(&b, 1));
}

/* It changes its pid faster than /proc can be read: a race that many looks win. */
TEST(kill_of_what_runs_ahead)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, prey(&b, "comet", NULL)));
    usleep(200000);
    CHECK(gconn_kill(&l, GUEST_KILL_ALONE) && gconn_finish(&l, &e) && e.last == GUEST_EXIT);
    CHECK(gbox_settles(&b, 1));
}

TEST(relay_gone_tree_gone)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;

    CHECK(
        gconn_run(&l, &b, shell("trap '' HUP TERM; setsid sleep 100 & echo ready; sleep 100", 0)));
    CHECK(await_line(&l, "ready\n"));
    gconn_close(&l);
    CHECK(gbox_settles(&b, 1));
}

TEST(nonsense_ends_it)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("sleep 100", 0)));
    CHECK(write(l.fd, "\xff\0\0\0\0", 5) == 5 && gconn_finish(&l, &e) && e.last == 0);
    CHECK(gbox_settles(&b, 1));
}

/* ---- daemonised children ---- */

TEST(daemonised_child_lives_on)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;
    uint64_t before = time_mono(), took;

    CHECK(gconn_run(&l, &b,
                    shell("(for i in 1 2 3 4; do sleep 1; echo tick; done;"
                          "sleep 100 & sleep 100 & exec sleep 100) & echo main",
                          0)));
    CHECK(gconn_finish(&l, &e) && e.last == GUEST_EXIT && e.ex.flags == 0);
    took = time_mono() - before;
    CHECK(took > 1900 * USEC_PER_MSEC);
    CHECK(strncmp(buf_data(&e.out), "main\n", 5) == 0);
    gconn_hang_up(&l);
    CHECK(gbox_settles(&b, 5)); /* not ended by a broken pipe: pid 1, guest, its last words over */
    pidfd_signal(b.init_pidfd, SIGKILL); /* or this guest would wait for its child */
}

TEST(child_without_our_pipes_is_not_waited_for)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("sleep 5 </dev/null >/dev/null 2>&1 & echo main", 0)));
    CHECK(gconn_finish(&l, &e) && e.ex.flags == GUEST_EXIT_DRAINED);
    CHECK(gbox_count(&b) == 3);
    gconn_hang_up(&l);
    CHECK(gbox_settles(&b, 1)); /* the guest goes with its last child */
}

TEST(kill_while_draining)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("sleep 100 & echo main", 0)));
    CHECK(await_line(&l, "main\n"));
    CHECK(gbox_settles(&b, 3)); /* pid 1, guest, sleep */
    CHECK(gconn_kill(&l, 0) && gconn_finish(&l, &e));
    CHECK(e.ex.status == 0 && e.ex.flags == GUEST_EXIT_DRAINED && gbox_settles(&b, 1));
}

/* The grace is over long before the relay reads, and a child still holds the pipe: the command's
 * own words come all the same. */
TEST(last_words_reach_a_slow_relay)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("sleep 100 & head -c 700000 /dev/zero; echo end", 0)));
    usleep(3000000);
    CHECK(gconn_finish(&l, &e) && e.last == GUEST_EXIT);
    CHECK(e.out.len == 700004 && STREQ(buf_data(&e.out) + 700000, "end\n"));
    gconn_hang_up(&l);
    pidfd_signal(b.init_pidfd, SIGKILL);
}

/* An engine may lose output of an ended process that it has not passed on yet. */
TEST(it_stays_until_it_was_heard)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    struct guest_frame f;

    CHECK(gconn_run(&l, &b, shell("echo bye", GUEST_SPEC_STDIN)));
    do
        CHECK(gconn_next(&l, &f) == 1);
    while (f.type != GUEST_EXIT);
    usleep(300000);
    CHECK(waitpid(l.pid, NULL, WNOHANG) == 0);
    CHECK(gconn_stdin(&l, "unheard", 7, false));
    gconn_hang_up(&l);
    CHECK(gbox_settles(&b, 1));
}

/* ---- much output ---- */

TEST(much_output_under_a_slow_reader)
{
    NEED_BOX(b);
    enum { TOTAL = 100 << 20, CHUNK = 64 << 10 };
    _cleanup_free_ char *want = xmalloc(CHUNK);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    uint64_t state = 0, got = 0, frames = 0;
    struct guest_exit ex;
    struct guest_frame f;

    CHECK(gconn_run(&l, &b, prey(&b, "noise", "104857600")));
    while (gconn_next(&l, &f) == 1 && f.type == GUEST_STDOUT) {
        for (uint32_t i = 0; i < f.length; i++, got++) {
            if (got % CHUNK == 0)
                prey_noise(&state, want, CHUNK);
            CHECK(f.data[i] == want[got % CHUNK]);
        }
        if (++frames % 16 == 0)
            usleep(1000);
    }
    CHECK(f.type == GUEST_EXIT && guest_get_exit(&f, &ex, NULL) == 0);
    CHECK(got == TOTAL && ex.stdout_bytes == TOTAL && ex.status == 0);
}

/* ---- dialling ---- */

static bool dial(struct gconn *l, const struct gbox *b, const char *port)
{
    const char *const args[] = {"dial", port, NULL};
    struct guest_frame f;

    return gconn_open(l, b, args) && gconn_next(l, &f) == 1 && f.type == GUEST_STARTED;
}

TEST(dial_and_half_close)
{
    NEED_BOX(b);
    static char data[300000];
    _cleanup_gconn_ struct gconn server = GCONN_INIT, l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;

    CHECK(gconn_run(&server, &b, prey(&b, "serve", "7001")) && await_line(&server, "ready\n"));
    CHECK(dial(&l, &b, "7001"));
    CHECK(gconn_stdin(&l, data, sizeof(data), false) && gconn_stdin(&l, "x", 1, true));
    CHECK(gconn_finish(&l, &e) && e.last == GUEST_DONE && e.out_eof && says(&e.out, "300001"));
}

TEST(dial_and_the_other_half)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn server = GCONN_INIT, l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT, se = GEND_INIT;
    struct guest_frame f;

    CHECK(gconn_run(&server, &b, prey(&b, "greet", "7002")) && await_line(&server, "ready\n"));
    CHECK(dial(&l, &b, "7002") && await_line(&l, "hello"));
    CHECK(gconn_next(&l, &f) == 1 && f.type == GUEST_STDOUT_EOF);
    CHECK(gconn_stdin(&l, "12345", 5, false) && gconn_stdin(&l, "678", 3, true));
    CHECK(gconn_finish(&l, &e) && e.last == GUEST_DONE && !e.out_eof);
    CHECK(gconn_finish(&server, &se) && says(&se.out, "8\n"));
}

TEST(dial_without_a_listener)
{
    NEED_BOX(b);
    static const char *const bad[] = {"0", "65536", "80x", ""};
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;
    const char *args[] = {"dial", "7003", NULL};

    CHECK(gconn_open(&l, &b, args) && gconn_finish(&l, &e));
    CHECK(e.last == GUEST_FAILED && e.failed.code == ERR_NOT_FOUND && e.failed.hint);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_gconn_ struct gconn wrong = GCONN_INIT;
        _cleanup_gend_ struct gend we = GEND_INIT;

        args[1] = bad[i];
        CHECK(gconn_open(&wrong, &b, args) && gconn_finish(&wrong, &we));
        CHECK(we.last == GUEST_FAILED && we.failed.code == ERR_INVALID);
    }
}

/* ---- copies ---- */

static int append(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len) < 0 ? -ENOSPC : 0;
}

static ssize_t take_from(void *arg, void *data, size_t len)
{
    struct buf *b = arg;
    size_t n = MIN(len, b->len);

    memcpy(data, buf_data(b), n);
    buf_consume(b, n);
    return (ssize_t)n;
}

static bool copy(const struct gbox *b, const char *mode, const char *path, const struct buf *tar,
                 struct gend *e)
{
    const char *const args[] = {mode, path, NULL};
    _cleanup_gconn_ struct gconn l = GCONN_INIT;

    if (!gconn_open(&l, b, args))
        return false;
    if (tar)
        (void)gconn_stdin(&l, buf_data(tar), tar->len, true);
    return gconn_finish(&l, e);
}

TEST(copy_out_and_in_again)
{
    NEED_BOX(b);
    _cleanup_free_ char *home = xasprintf("%s/home", b.dir), *text = NULL;
    _cleanup_free_ char *from = xasprintf("%s/tree", home), *to = xasprintf("%s/again", home);
    _cleanup_free_ char *script =
        xasprintf("cd %s && mkdir -p tree/sub && head -c 200000 /dev/zero >tree/big &&"
                  "echo text >tree/sub/file && ln -s /etc/passwd tree/link && mkfifo tree/fifo &&"
                  "chmod 4755 tree/big",
                  home);
    _cleanup_gend_ struct gend out = GEND_INIT, in = GEND_INIT, se = GEND_INIT;
    struct stat st;

    CHECK(run(&b, shell(script, 0), &se));
    CHECK(se.ex.status == 0);
    CHECK(copy(&b, "copy-out", from, NULL, &out) && out.last == GUEST_DONE);
    CHECK(out.done.entries == 5 && out.done.bytes == 200005 && out.done.skipped == 1);
    CHECK(copy(&b, "copy-in", to, &out.out, &in) && in.last == GUEST_DONE);
    CHECK(in.done.bytes == 200005);
    CHECK(file_read(AT_FDCWD, at(to, "sub/file"), 100, &text, NULL, NULL) == 0);
    CHECK_STR(text, "text\n");
    CHECK(lstat(at(to, "big"), &st) == 0 && st.st_uid == GBOX_UID);
    CHECK((st.st_mode & 07777) == 0755 && st.st_size == 200000);
    CHECK(lstat(at(to, "link"), &st) == 0 && S_ISLNK(st.st_mode));
}

TEST(copy_in_is_not_led_astray)
{
    NEED_BOX(b);
    _cleanup_free_ char *home = xasprintf("%s/home", b.dir), *outside = xasprintf("%s/out", b.dir);
    _cleanup_free_ char *planted = xasprintf("%s/sub", home), *evil = xasprintf("%s/evil", outside);
    _cleanup_buf_ struct buf tar = BUF_INIT(1 << 20);
    _cleanup_gend_ struct gend e = GEND_INIT, denied = GEND_INIT, rel = GEND_INIT, cut = GEND_INIT;
    struct tar_entry entry = {.type = TAR_FILE, .mode = 0644, .size = 1, .path = "sub/evil"};
    struct tar_writer w;

    CHECK(mkdir(outside, 0777) == 0 && chmod(outside, 0777) == 0 && symlink(outside, planted) == 0);
    tar_writer_init(&w, append, &tar);
    CHECK(tar_put(&w, &entry, NULL) == 0 && tar_write(&w, "x", 1, NULL) == 0 &&
          tar_finish(&w, NULL) == 0);
    CHECK(copy(&b, "copy-in", home, &tar, &e) && e.last == GUEST_FAILED);
    CHECK(e.failed.code == ERR_DENIED && access(evil, F_OK) < 0);
    CHECK(copy(&b, "copy-in", b.dir, &tar, &denied) && denied.failed.code == ERR_DENIED);
    CHECK(copy(&b, "copy-in", "home", &tar, &rel) && rel.failed.code == ERR_INVALID);
    buf_truncate(&tar, 512);
    CHECK(copy(&b, "copy-in", home, &tar, &cut) && cut.last == GUEST_FAILED);
}

TEST(copy_out_reads_as_the_user)
{
    NEED_BOX(b);
    _cleanup_free_ char *secret = xasprintf("%s/secret", b.dir);
    _cleanup_gend_ struct gend e = GEND_INIT, none = GEND_INIT;

    CHECK(file_replace(AT_FDCWD, secret, "x", 1, 0600, false, NULL) >= 0);
    CHECK(copy(&b, "copy-out", secret, NULL, &e) && e.last == GUEST_FAILED);
    CHECK(e.failed.code == ERR_DENIED);
    CHECK(copy(&b, "copy-out", at(b.dir, "absent"), NULL, &none) &&
          none.failed.code == ERR_NOT_FOUND);
}

TEST(copied_tree_is_the_same)
{
    NEED_BOX(b);
    _cleanup_free_ char *home = xasprintf("%s/home", b.dir), *mine = xasprintf("%s/mine", b.dir);
    _cleanup_free_ char *data = xmalloc(1 << 20), *back = NULL;
    _cleanup_gend_ struct gend e = GEND_INIT;
    struct tree_stats stats = {0};
    uint64_t state = 0;
    size_t len;

    prey_noise(&state, data, 1 << 20);
    CHECK(file_replace(AT_FDCWD, at(home, "blob"), data, 1 << 20, 0644, false, NULL) >= 0);
    CHECK(copy(&b, "copy-out", home, NULL, &e) && e.last == GUEST_DONE);
    CHECK(tree_from_tar(mine, NULL, take_from, &e.out, &stats, NULL) >= 0);
    CHECK(file_read(AT_FDCWD, at(mine, "blob"), 2 << 20, &back, &len, NULL) == 0);
    CHECK(len == 1 << 20 && memcmp(data, back, len) == 0);
}

/* ---- guests that are killed, and pid 1 ---- */

static bool reap(const struct gbox *b, uint32_t pid, struct gend *e)
{
    _cleanup_free_ char *text = xasprintf("%u", pid);
    const char *const args[] = {"reap", pid ? text : NULL, NULL};
    _cleanup_gconn_ struct gconn l = GCONN_INIT;

    return gconn_open(&l, b, args) && gconn_finish(&l, e);
}

TEST(reap_after_a_killed_guest)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn victim = GCONN_INIT, other = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT, ve = GEND_INIT, ke = GEND_INIT;
    _cleanup_free_ char *script = NULL;

    CHECK(gconn_run(&other, &b, shell("setsid sleep 100 & echo up; sleep 100", 0)));
    CHECK(await_line(&other, "up\n"));
    CHECK(gconn_run(&victim, &b, shell("setsid sleep 100 & (sleep 100 &); echo up; sleep 100", 0)));
    CHECK(await_line(&victim, "up\n"));
    script = xasprintf("kill -9 %u", victim.inside);
    CHECK(run(&b, shell(script, 0), &ke) && ke.ex.status == 0);
    CHECK(gconn_finish(&victim, &ve) &&
          ve.last == 0); /* an end that was not seen is not reported */
    CHECK(reap(&b, victim.inside, &e) && e.last == GUEST_DONE && e.done.entries >= 2);
    CHECK(gbox_settles(&b, 5)); /* pid 1; the other guest, its shell and two sleeps */
    gconn_close(&other);
    CHECK(gbox_settles(&b, 1));
}

TEST(reap_of_a_stopped_guest)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn victim = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT, ke = GEND_INIT;
    _cleanup_free_ char *script = NULL;

    CHECK(gconn_run(&victim, &b, shell("setsid sleep 100 & echo up; sleep 100", 0)));
    CHECK(await_line(&victim, "up\n"));
    script = xasprintf("kill -STOP %u", victim.inside);
    CHECK(run(&b, shell(script, 0), &ke) && ke.ex.status == 0);
    CHECK(reap(&b, victim.inside, &e) && e.last == GUEST_DONE && e.done.entries >= 3);
    CHECK(gbox_settles(&b, 1));
}

/* A process that is not a guest is not killed when a request names it, and pid 1 is not either. */
TEST(reap_takes_only_the_lost)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT, f = GEND_INIT;

    CHECK(gconn_run(&l, &b, shell("echo $$; exec sleep 100", 0)));
    CHECK(reap(&b, l.inside + 1, &e) && e.last == GUEST_DONE && e.done.entries == 0);
    CHECK(reap(&b, 1, &f) && f.last == GUEST_FAILED);
    CHECK(gbox_count(&b) == 3);
}

TEST(reap_only_where_pid_1_is_ours)
{
    static const char *const sleep_forever[] = {"/bin/sleep", "100", NULL};
    _cleanup_gbox_ struct gbox b = {0};
    _cleanup_gend_ struct gend e = GEND_INIT;

    if (gbox_unavailable())
        SKIP(gbox_unavailable());
    CHECK(gbox_open(&b, sleep_forever));
    CHECK(reap(&b, 0, &e) && e.last == GUEST_FAILED && e.failed.code == ERR_DENIED);
}

TEST(pid_1_listens_to_the_engine_only)
{
    NEED_BOX(b);
    _cleanup_gend_ struct gend e = GEND_INIT;
    int status = 0;

    CHECK(
        run(&b, shell("kill -TERM 1; kill -INT 1; kill -KILL 1; (sleep 0.1 &); sleep 0.3", 0), &e));
    CHECK(gbox_settles(&b, 1)); /* still there, and no zombies */
    CHECK(pidfd_signal(b.init_pidfd, SIGTERM) == 0);
    CHECK(pidfd_reap(b.init_pidfd, true, &status, NULL) == 1 && status == 0);
    b.init = -1;
    b.init_pidfd = fd_close(b.init_pidfd);
}

TEST(other_processes_cannot_read_the_guest)
{
    NEED_BOX(b);
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend e = GEND_INIT;
    _cleanup_free_ char *script = NULL;

    CHECK(gconn_run(&l, &b, shell("sleep 100", 0)));
    script = xasprintf("for p in 1 %u; do for f in fd environ mem maps; do"
                       " (exec 3</proc/$p/$f && ls /proc/$p/$f/) 2>/dev/null && echo $p/$f; done;"
                       " done; echo end",
                       l.inside);
    CHECK(run(&b, shell(script, 0), &e) && says(&e.out, "end\n"));
}

/* As gVisor of 2022 answers. */
static bool forget_subreapers(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_CHILD_SUBREAPER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof(code) / sizeof(*code), .filter = code};

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static bool refused_without_subreapers(void)
{
    static const char *const args[] = {"exec", NULL};
    _cleanup_gbox_ struct gbox b = {0};
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    _cleanup_gend_ struct gend end = GEND_INIT;

    return forget_subreapers() && gbox_open(&b, NULL) && gconn_open(&l, &b, args) &&
           gconn_finish(&l, &end) && end.last == GUEST_FAILED &&
           end.failed.code == ERR_UNSUPPORTED && end.failed.hint;
}

TEST(a_kernel_without_subreapers_is_refused)
{
    int status;
    pid_t pid;

    if (gbox_unavailable())
        SKIP(gbox_unavailable());
    pid = fork(); /* the filter cannot be taken off again */
    if (pid == 0)
        _exit(!refused_without_subreapers());
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(unknown_modes)
{
    NEED_BOX(b);
    static const char *const args[] = {"shell", NULL};
    _cleanup_gconn_ struct gconn l = GCONN_INIT;
    int status = 0;

    CHECK(!gconn_open(&l, &b, args));
    CHECK(waitpid(l.pid, &status, 0) == l.pid && WEXITSTATUS(status) == 2);
    l.pid = -1;
}
