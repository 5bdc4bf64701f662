/* The daemon's side of proto/supervisor.h against a peer that the test plays itself. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/engine/exec-request.h"
#include "daemon/engine/supervisor-conn.h"
#include "large-command.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "proto/handover.h"
#include "proto/supervisor.h"
#include "tap.h"

#define EXEC "0123456789abcdef"

/* So many calls more find the kernel without memory. */
static unsigned shortages;

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    if (shortages) {
        shortages--;
        errno = ENOBUFS;
        return -1;
    }
    return syscall(SYS_sendmsg, fd, msg, flags);
}

struct seen {
    struct loop *loop;
    struct supervisor_conn *conn;
    unsigned started, start_failed, output, ended, closed, results;
    int pid, fd;
    enum err_code code;
    char *msg;
    struct end_record rec;
    uint64_t out_end, err_end;
    char **stats;
    bool close_in_callback;
};

static void stop(struct seen *s)
{
    if (s->close_in_callback)
        supervisor_conn_close(TAKE_PTR(s->conn));
    loop_stop(s->loop);
}

static void note_err(struct seen *s, const struct err *err)
{
    s->code = err ? err->code : ERR_NONE;
    free(s->msg);
    s->msg = err ? xstrdup(err->msg) : NULL;
}

static void on_started(void *arg, const char *exec, int pid, int fd)
{
    struct seen *s = arg;

    s->started += STREQ(exec, EXEC);
    s->pid = pid;
    s->fd = fd;
    stop(s);
}

static void on_start_failed(void *arg, const char *exec _unused_, const struct err *err)
{
    struct seen *s = arg;

    s->start_failed++;
    note_err(s, err);
}

static void on_output(void *arg, const char *exec _unused_, uint64_t out, uint64_t err)
{
    struct seen *s = arg;

    s->output++;
    s->out_end = out;
    s->err_end = err;
    stop(s);
}

static void on_ended(void *arg, const char *exec _unused_, const struct end_record *rec)
{
    struct seen *s = arg;

    s->ended++;
    s->rec = *rec;
    stop(s);
}

static void on_closed(void *arg)
{
    struct seen *s = arg;

    s->closed++;
    s->conn = NULL;
    loop_stop(s->loop);
}

static const struct supervisor_events events = {on_started, on_start_failed, on_output,
                                                on_ended,   on_closed,       NULL};

static void on_result(void *arg, const struct err *err, int fd)
{
    struct seen *s = arg;

    s->results++;
    s->fd = fd;
    note_err(s, err);
    stop(s);
}

static void on_stats(void *arg, const struct err *err, char **stats)
{
    struct seen *s = arg;

    s->results++;
    note_err(s, err);
    s->stats = err ? NULL : strv_copy(stats);
    stop(s);
}

/* ---- the peer ---- */

struct pair {
    struct seen s;
    int peer;
};

static void pair_init_minor(struct pair *p, uint32_t minor)
{
    int fds[2];

    *p = (struct pair){.s.fd = -1};
    if (loop_new(&p->s.loop, NULL) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        abort();
    p->peer = fds[1];
    p->s.conn = supervisor_conn_open(p->s.loop, fds[0], minor, &events, &p->s);
}

static void pair_init(struct pair *p)
{
    pair_init_minor(p, SUP_VERSION_MINOR);
}

static void pair_done(struct pair *p)
{
    supervisor_conn_close(p->s.conn);
    fd_close(p->peer);
    fd_close(p->s.fd);
    free(p->s.msg);
    strv_free(p->s.stats);
    loop_free(p->s.loop);
}

static void say(struct pair *p, struct sup_writer *w, int fd)
{
    if (sup_finish(w, NULL) < 0 ||
        fd_send(p->peer, buf_data(&w->buf), w->buf.len, &fd, fd >= 0, 0) < 0)
        abort();
    sup_writer_done(w);
}

/* Type of the next message of the connection, and its seq; -1 when there is none. */
static int hear(struct pair *p, uint64_t *seq)
{
    static _Alignas(8) char packet[SUP_MSG_MAX];
    struct sup_reader rd;
    ssize_t n = fd_recv(p->peer, packet, sizeof(packet), NULL, NULL, MSG_DONTWAIT);

    if (n <= 0 || sup_read(&rd, packet, (size_t)n, NULL) < 0)
        return -1;
    *seq = rd.head.seq;
    return rd.head.type;
}

static void say_about(struct pair *p, enum sup_msg_type type, uint64_t seq, int fd)
{
    struct sup_writer w;

    sup_begin(&w, type, seq);
    sup_put_str(&w, SUP_TAG_EXEC, EXEC);
    sup_put_u64(&w, SUP_TAG_PID, 42);
    sup_put_u64(&w, SUP_TAG_STDOUT, 7);
    sup_put_u64(&w, SUP_TAG_STDERR, 9);
    say(p, &w, fd);
}

static void say_result(struct pair *p, uint64_t seq, const struct err *err, int fd)
{
    struct sup_writer w;

    sup_begin(&w, SUP_RESULT, seq);
    if (err)
        sup_put_err(&w, err);
    say(p, &w, fd);
}

static struct exec_request request(void)
{
    struct exec_request r = {.id = EXEC, .want_stdin = true};

    strv_add(&r.argv, "echo");
    strv_add(&r.argv, "hi");
    return r;
}

TEST(exec_starts_and_hands_over_stdin)
{
    struct exec_request r = request();
    uint64_t seq = 0;
    struct pair p;

    pair_init(&p);
    supervisor_conn_exec(p.s.conn, &r);
    CHECK(hear(&p, &seq) == SUP_EXEC);
    say_about(&p, SUP_STARTED, seq, p.peer);
    loop_run(p.s.loop);
    CHECK(p.s.started == 1 && p.s.pid == 42 && p.s.fd >= 0);
    exec_request_done(&r);
    pair_done(&p);
}

TEST(output_and_end)
{
    struct end_record rec = {.cause = END_EXITED, .exit_code = 3, .stdout_bytes = 7};
    struct buf text = BUF_INIT(8192);
    struct sup_writer w;
    struct pair p;

    pair_init(&p);
    say_about(&p, SUP_OUTPUT, 0, -1);
    loop_run(p.s.loop);
    CHECK(p.s.output == 1 && p.s.out_end == 7 && p.s.err_end == 9);
    CHECK(end_record_format(&rec, &text) >= 0);
    sup_begin(&w, SUP_ENDED, 0);
    sup_put_str(&w, SUP_TAG_EXEC, EXEC);
    sup_put_bytes(&w, SUP_TAG_RECORD, buf_data(&text), text.len);
    say(&p, &w, -1);
    loop_run(p.s.loop);
    CHECK(p.s.ended == 1 && p.s.rec.cause == END_EXITED && p.s.rec.exit_code == 3);
    buf_done(&text);
    pair_done(&p);
}

TEST(broken_record_is_engine_lost)
{
    struct sup_writer w;
    struct pair p;

    pair_init(&p);
    sup_begin(&w, SUP_ENDED, 0);
    sup_put_str(&w, SUP_TAG_EXEC, EXEC);
    sup_put_str(&w, SUP_TAG_RECORD, "cause=vanished\n");
    say(&p, &w, -1);
    loop_run(p.s.loop);
    CHECK(p.s.ended == 1 && p.s.rec.cause == END_ENGINE_LOST && p.s.rec.exit_code == -1);
    pair_done(&p);
}

TEST(results_find_their_request)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t seq = 0;
    struct pair p;

    pair_init(&p);
    supervisor_conn_dial(p.s.conn, 80, on_result, &p.s);
    CHECK(p.s.results == 0);
    CHECK(hear(&p, &seq) == SUP_DIAL);
    say_result(&p, seq + 100, NULL, p.peer); /* not requested: ignored, its descriptor closed */
    err_set(&err, ERR_NOT_FOUND, "nothing listens");
    say_result(&p, seq, &err, -1);
    loop_run(p.s.loop);
    CHECK(p.s.results == 1 && p.s.code == ERR_NOT_FOUND && p.s.fd == -1);
    CHECK_STR(p.s.msg, "nothing listens");
    pair_done(&p);
}

TEST(stats_are_a_list)
{
    struct sup_writer w;
    uint64_t seq = 0;
    struct pair p;

    pair_init(&p);
    supervisor_conn_stats(p.s.conn, on_stats, &p.s);
    CHECK(hear(&p, &seq) == SUP_STATS);
    sup_begin(&w, SUP_STATS, seq);
    sup_put_str(&w, SUP_TAG_STAT, "memory=1");
    sup_put_str(&w, SUP_TAG_STAT, "pids=2");
    say(&p, &w, -1);
    loop_run(p.s.loop);
    CHECK(strv_len(p.s.stats) == 2);
    CHECK_STR(p.s.stats[1], "pids=2");
    pair_done(&p);
}

TEST(the_end_of_the_connection_answers_all_requests)
{
    struct pair p;

    pair_init(&p);
    supervisor_conn_stop(p.s.conn, 1, false, on_result, &p.s);
    p.peer = fd_close(p.peer);
    loop_run(p.s.loop);
    if (!p.s.closed)
        loop_run(p.s.loop);
    CHECK(p.s.results == 1 && p.s.code == ERR_ENGINE && p.s.closed == 1);
    pair_done(&p);
}

static void stop_loop(void *arg)
{
    loop_stop(arg);
}

TEST(a_kernel_short_of_memory_does_not_end_the_connection)
{
    uint64_t seq = 0, next = 0;
    struct loop_timer *t;
    struct pair p;
    int type;

    pair_init(&p);
    t = loop_timer_new(p.s.loop, stop_loop, p.s.loop);
    shortages = 3;
    supervisor_conn_stats(p.s.conn, on_stats, &p.s);
    supervisor_conn_ack(p.s.conn, EXEC, 1, 1);
    for (int turns = 0; (type = hear(&p, &seq)) < 0 && turns < 1000; turns++) {
        loop_timer_set(t, 5 * USEC_PER_MSEC, false);
        loop_run(p.s.loop);
    }
    CHECK(type == SUP_STATS && shortages == 0);
    CHECK(hear(&p, &next) == SUP_ACK && next > seq);
    CHECK(p.s.closed == 0 && p.s.results == 0);
    loop_timer_free(t);
    pair_done(&p);
}

TEST(calls_on_a_dead_connection_fail_on_the_next_turn)
{
    struct exec_request r = request();
    struct pair p;

    pair_init(&p);
    p.peer = fd_close(p.peer);
    supervisor_conn_kill(p.s.conn, EXEC, END_KILLED, on_result, &p.s);
    supervisor_conn_ack(p.s.conn, EXEC, 1, 1);
    CHECK(p.s.results == 0 && p.s.closed == 0);
    while (!p.s.closed)
        loop_run(p.s.loop);
    CHECK(p.s.results == 1 && p.s.code == ERR_ENGINE);
    exec_request_done(&r);
    pair_done(&p);
}

/* One that does not fit into a message. */
static struct exec_request large_request(size_t size)
{
    struct exec_request r = request();

    strv_free(r.argv);
    r.argv = large_command(size, false);
    strv_add(&r.env, "A=1");
    r.cwd = xstrdup("/tmp");
    return r;
}

TEST(a_command_that_fits_a_message_goes_in_it)
{
    struct exec_request r = large_request(190 << 10);
    uint64_t seq = 0;
    struct pair p;

    pair_init(&p);
    supervisor_conn_exec(p.s.conn, &r);
    CHECK(hear(&p, &seq) == SUP_EXEC);
    exec_request_done(&r);
    pair_done(&p);
}

/* What the peer gets with the next message; the strings of *ret lie in it. */
static int hear_handover(struct pair *p, struct handover *ret)
{
    static _Alignas(8) char packet[SUP_MSG_MAX];
    _cleanup_close_ int fd = -1;
    struct sup_reader rd;
    size_t n_fds = 1;
    ssize_t n = fd_recv(p->peer, packet, sizeof(packet), &fd, &n_fds, MSG_DONTWAIT);

    if (n <= 0 || sup_read(&rd, packet, (size_t)n, NULL) < 0 || handover_read(fd, ret, NULL) < 0)
        return -1;
    return rd.head.type;
}

TEST(a_larger_command_goes_in_a_handover)
{
    struct exec_request r = large_request(COMMAND_MAX - 100);
    struct handover h = {0};
    struct pair p;

    pair_init(&p);
    supervisor_conn_exec(p.s.conn, &r);
    CHECK(hear_handover(&p, &h) == SUP_EXEC_LARGE);
    CHECK(strv_equal(h.argv, r.argv) && strv_equal(h.env, r.env));
    handover_done(&h);
    exec_request_done(&r);
    pair_done(&p);
}

/* Nothing is sent. The failure is reported on the next turn of the loop, which ends it. */
static void refuse_command(struct pair *p, const struct exec_request *r)
{
    uint64_t seq = 0;

    supervisor_conn_exec(p->s.conn, r);
    CHECK(hear(p, &seq) == -1 && p->s.start_failed == 0);
    loop_run(p->s.loop);
    CHECK(p->s.start_failed == 1 && p->s.ended == 1 && p->s.rec.cause == END_START_FAILED);
    CHECK(hear(p, &seq) == -1 && !p->s.closed);
}

TEST(too_large_a_command_is_a_failed_start)
{
    struct exec_request r = large_request(COMMAND_MAX);
    struct pair p;

    pair_init(&p);
    refuse_command(&p, &r); /* its variable is over the limit */
    CHECK(p.s.code == ERR_LIMIT && p.s.rec.error == ERR_LIMIT);
    exec_request_done(&r);
    pair_done(&p);
}

TEST(an_older_supervisor_gets_no_large_command)
{
    struct exec_request large = large_request(200 << 10), small = request();
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t seq = 0;
    struct pair p;

    pair_init_minor(&p, 4);
    CHECK(supervisor_conn_check_exec(p.s.conn, &small, NULL) == 0);
    CHECK(supervisor_conn_check_exec(p.s.conn, &large, &err) == -ERR_UNSUPPORTED);
    CHECK(strstr(err.msg, "192 KiB") && err.hint && strstr(err.hint, "Stop the sandbox"));
    refuse_command(&p, &large);
    CHECK(p.s.code == ERR_UNSUPPORTED && p.s.rec.error == ERR_UNSUPPORTED);
    supervisor_conn_exec(p.s.conn, &small);
    CHECK(hear(&p, &seq) == SUP_EXEC);
    exec_request_done(&large);
    exec_request_done(&small);
    pair_done(&p);
}

TEST(an_older_supervisor_merges_no_output)
{
    struct exec_request merged = request();
    _cleanup_err_ struct err err = ERR_INIT;
    struct pair p;

    merged.merged = true;
    pair_init_minor(&p, 7);
    CHECK(supervisor_conn_check_exec(p.s.conn, &merged, &err) == -ERR_UNSUPPORTED);
    CHECK(err.hint && strstr(err.hint, "Stop the sandbox"));
    refuse_command(&p, &merged);
    CHECK(p.s.code == ERR_UNSUPPORTED && p.s.rec.error == ERR_UNSUPPORTED);
    exec_request_done(&merged);
    pair_done(&p);
}

TEST(a_peer_that_never_reads_is_bounded)
{
    char *path = xcalloc(100001, 1);
    struct pair p;

    pair_init(&p);
    memset(path, 'p', 100000);
    for (int i = 0; i < 100; i++)
        supervisor_conn_copy(p.s.conn, &(struct sup_copy){.path = path}, -1, on_stats, &p.s);
    CHECK(p.s.results == 0);
    loop_run(p.s.loop);
    /* the socket's own buffer and 1 MiB of queue are less than 10 MB */
    CHECK(p.s.results > 50 && p.s.results < 100 && p.s.code == ERR_LIMIT && !p.s.closed);
    free(path);
    pair_done(&p);
}

TEST(queued_messages_are_sent_in_order_when_it_drains)
{
    enum { MESSAGES = 40 };
    char *path = xcalloc(40001, 1);
    uint64_t seq = 0, last = 0;
    struct pair p;
    int n = 0;

    pair_init(&p);
    memset(path, 'p', 40000);
    for (int i = 0; i < MESSAGES; i++)
        supervisor_conn_copy(p.s.conn, &(struct sup_copy){.path = path}, -1, on_stats, &p.s);
    for (int turns = 0; n < MESSAGES - 10 && turns < 1000; turns++) {
        while (hear(&p, &seq) == SUP_COPY) {
            CHECK(seq > last);
            last = seq;
            n++;
        }
        loop_defer(p.s.loop, (loop_fn)loop_stop, p.s.loop);
        loop_run(p.s.loop);
    }
    CHECK(n >= MESSAGES - 10);
    free(path);
    pair_done(&p);
}

TEST(an_invalid_message_closes_the_connection)
{
    struct pair p;

    pair_init(&p);
    CHECK(fd_send(p.peer, "nonsense that is no message", 27, NULL, 0, 0) == 0);
    loop_run(p.s.loop);
    CHECK(p.s.closed == 1);
    pair_done(&p);
}

TEST(another_major_version_closes_the_connection)
{
    struct sup_writer w;
    struct pair p;

    pair_init(&p);
    sup_begin(&w, SUP_HELLO, 0);
    sup_put_u64(&w, SUP_TAG_VERSION, (uint64_t)(SUP_VERSION_MAJOR + 1) << 32);
    say(&p, &w, -1);
    loop_run(p.s.loop);
    CHECK(p.s.closed == 1);
    pair_done(&p);
}

TEST(a_callback_may_close_the_connection)
{
    struct pair p;

    pair_init(&p);
    p.s.close_in_callback = true;
    supervisor_conn_stats(p.s.conn, on_stats,
                          &p.s); /* never answered: forgotten with the connection */
    say_about(&p, SUP_OUTPUT, 0, -1);
    say_about(&p, SUP_OUTPUT, 0, -1);
    loop_run(p.s.loop);
    CHECK(p.s.output == 1 && p.s.results == 0 && p.s.closed == 0 && !p.s.conn);
    pair_done(&p);
}
