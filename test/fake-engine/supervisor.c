/*
 * A poll loop over a control socket, the connections, and the stdins of running commands. New
 * connections arrive on the control socket as descriptors, and its end means "die". All state
 * belongs to the thread; other threads hold only the control socket, so there is nothing to lock.
 */
#include "fake-engine/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "daemon/engine/sandbox-request.h"
#include "fake-engine/exec.h"
#include "fake-engine/fake.h"
#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"
#include "proto/files.h"
#include "proto/handover.h"
#include "proto/supervisor.h"

enum { FAKE_CONNS_MAX = 8, FAKE_EXECS_MAX = 256 };

struct fake_attachment {
    char exec[EXEC_ID_LEN + 1];
    uint64_t told[JOURNAL_STREAMS];
    bool in_flight; /* an OUTPUT is not acknowledged yet */
};

struct conn {
    int fd; /* -1: free */
    struct fake_attachment attached[FAKE_EXECS_MAX];
    size_t n_attached;
};

struct fake_supervisor {
    pthread_t thread;
    int control; /* end of the other threads */
    atomic_bool alive;

    /* end of this thread */
    int control_in;
    char id[33], hash[65];
    bool ephemeral, paused, stopping, killed;
    int exec_dirfd;
    uint64_t budget;
    struct conn conns[FAKE_CONNS_MAX];
    struct fake_exec *execs;
    size_t n_execs;
};

static atomic_bool ends_at_listener;

void fake_end_at_listener(bool on)
{
    atomic_store(&ends_at_listener, on);
}

static struct fake_exec *find_exec(struct fake_supervisor *s, const char *id)
{
    for (struct fake_exec *x = s->execs; x; x = x->next)
        if (STREQ(x->id, id))
            return x;
    return NULL;
}

/* ---- out ---- */

static void conn_close(struct conn *c)
{
    c->fd = fd_close(c->fd);
    c->n_attached = 0;
}

static void send_msg(struct conn *c, struct sup_writer *w, int fd)
{
    if (sup_finish(w, NULL) < 0 ||
        fd_send(c->fd, buf_data(&w->buf), w->buf.len, &fd, fd >= 0, 0) < 0)
        conn_close(c);
    sup_writer_done(w);
}

static void send_result(struct conn *c, uint64_t seq, const struct err *err, int fd)
{
    struct sup_writer w = {0};

    sup_begin(&w, SUP_RESULT, seq);
    if (err)
        sup_put_err(&w, err);
    send_msg(c, &w, fd);
}

static void send_about(struct conn *c, enum sup_msg_type type, uint64_t seq,
                       const struct fake_exec *x)
{
    struct sup_writer w = {0};

    sup_begin(&w, type, seq);
    sup_put_str(&w, SUP_TAG_EXEC, x->id);
    sup_put_u64(&w, SUP_TAG_STDOUT, x->streams[JOURNAL_STDOUT].end);
    sup_put_u64(&w, SUP_TAG_STDERR, x->streams[JOURNAL_STDERR].end);
    send_msg(c, &w, -1);
}

static void send_hello(struct fake_supervisor *s, struct conn *c)
{
    struct sup_writer w = {0};

    sup_begin(&w, SUP_HELLO, 0);
    sup_put_u64(&w, SUP_TAG_VERSION, (uint64_t)SUP_VERSION_MAJOR << 32 | SUP_VERSION_MINOR);
    sup_put_u64(&w, SUP_TAG_PID, (uint64_t)getpid());
    sup_put_str(&w, SUP_TAG_SANDBOX, s->id);
    sup_put_str(&w, SUP_TAG_HASH, s->hash);
    sup_put_u64(&w, SUP_TAG_STATE, s->paused ? SUP_PAUSED : SUP_RUNNING);
    send_msg(c, &w, -1);
}

static void send_plain(struct conn *c, enum sup_msg_type type)
{
    struct sup_writer w = {0};

    sup_begin(&w, type, 0);
    send_msg(c, &w, -1);
}

static void send_ended(struct fake_supervisor *s, const struct fake_exec *x)
{
    struct buf text = BUF_INIT(8192);

    if (end_record_format(&x->rec, &text) < 0)
        buf_clear(&text);
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++) {
        struct sup_writer w = {0};

        if (s->conns[i].fd < 0)
            continue;
        sup_begin(&w, SUP_ENDED, 0);
        sup_put_str(&w, SUP_TAG_EXEC, x->id);
        sup_put_bytes(&w, SUP_TAG_RECORD, buf_data(&text), text.len);
        send_msg(&s->conns[i], &w, -1);
    }
    buf_done(&text);
}

/* Sends OUTPUT to attached connections that have seen less and acknowledged the last one. */
static void send_output(struct fake_supervisor *s, struct conn *c)
{
    for (size_t i = 0; i < c->n_attached; i++) {
        struct fake_attachment *a = &c->attached[i];
        const struct fake_exec *x = find_exec(s, a->exec);

        if (!x || a->in_flight)
            continue;
        if (a->told[JOURNAL_STDOUT] >= x->streams[JOURNAL_STDOUT].end &&
            a->told[JOURNAL_STDERR] >= x->streams[JOURNAL_STDERR].end)
            continue;
        for (int k = 0; k < JOURNAL_STREAMS; k++)
            a->told[k] = x->streams[k].end;
        a->in_flight = true;
        send_about(c, SUP_OUTPUT, 0, x);
        if (c->fd < 0)
            return;
    }
}

/* ---- in ---- */

struct order {
    enum sup_msg_type type;
    uint64_t seq;
    struct exec_request req; /* id, argv, env, flags, timeouts */
    uint64_t offsets[JOURNAL_STREAMS];
    uint64_t sig, cause, port, direction;
    int fd;
};

static void order_field(struct order *o, const struct sup_value *v)
{
    if (v->tag == SUP_TAG_EXEC)
        snprintf(o->req.id, sizeof(o->req.id), "%s", v->data);
    else if (v->tag == SUP_TAG_ARG)
        strv_add(&o->req.argv, v->data);
    else if (v->tag == SUP_TAG_FLAGS) {
        o->req.want_stdin = v->u64 & SUP_EXEC_STDIN;
        o->req.attach = v->u64 & SUP_EXEC_ATTACH;
    } else if (v->tag == SUP_TAG_TIMEOUT)
        o->req.timeout = v->u64;
    else if (v->tag == SUP_TAG_IDLE_TIMEOUT)
        o->req.idle_timeout = v->u64;
    else if (v->tag == SUP_TAG_STDOUT)
        o->offsets[JOURNAL_STDOUT] = v->u64;
    else if (v->tag == SUP_TAG_STDERR)
        o->offsets[JOURNAL_STDERR] = v->u64;
    else if (v->tag == SUP_TAG_SIGNAL)
        o->sig = v->u64;
    else if (v->tag == SUP_TAG_CAUSE)
        o->cause = v->u64;
    else if (v->tag == SUP_TAG_PORT)
        o->port = v->u64;
    else if (v->tag == SUP_TAG_DIRECTION)
        o->direction = v->u64;
}

static struct fake_attachment *find_attachment(struct conn *c, const char *exec)
{
    for (size_t i = 0; i < c->n_attached; i++)
        if (STREQ(c->attached[i].exec, exec))
            return &c->attached[i];
    return NULL;
}

static void attach(struct conn *c, const struct order *o)
{
    struct fake_attachment *a = find_attachment(c, o->req.id);

    if (!a && c->n_attached < FAKE_EXECS_MAX)
        a = &c->attached[c->n_attached++];
    if (!a)
        return;
    *a = (struct fake_attachment){0};
    memcpy(a->exec, o->req.id, sizeof(a->exec));
    memcpy(a->told, o->offsets, sizeof(a->told));
}

static void detach(struct conn *c, const char *exec)
{
    struct fake_attachment *a = find_attachment(c, exec);

    if (a)
        *a = c->attached[--c->n_attached];
}

static void report_end(struct fake_supervisor *s, const struct fake_exec *x)
{
    send_ended(s, x);
    s->stopping |= s->ephemeral;
}

static void take_command(struct order *o)
{
    struct handover h = {0};

    if (handover_read(o->fd, &h, NULL) < 0)
        return;
    o->req.argv = strv_copy(h.argv);
    handover_done(&h);
}

static void do_exec(struct fake_supervisor *s, struct conn *c, struct order *o)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sup_writer w = {0};
    struct fake_exec *x;
    int r;

    if (s->n_execs >= FAKE_EXECS_MAX || find_exec(s, o->req.id)) {
        err_set(&err, ERR_LIMIT, "the fake engine takes no exec '%s'", o->req.id);
        send_result(c, o->seq, &err, -1);
        return;
    }
    if (o->type == SUP_EXEC_LARGE)
        take_command(o);
    r = fake_exec_start(s->exec_dirfd, &o->req, s->budget, &x, &err);
    x->next = s->execs;
    s->execs = x;
    s->n_execs++;
    sup_begin(&w, r < 0 ? SUP_EXEC_FAILED : SUP_STARTED, o->seq);
    sup_put_str(&w, SUP_TAG_EXEC, x->id);
    if (r < 0)
        sup_put_err(&w, &err);
    else
        sup_put_u64(&w, SUP_TAG_PID, (uint64_t)getpid());
    send_msg(c, &w, x->stdin_out);
    x->stdin_out = fd_close(x->stdin_out);
    if (o->req.attach && c->fd >= 0)
        attach(c, o);
    if (x->ended)
        report_end(s, x);
}

/* Handles a request about one exec; false: it is another request. */
static bool do_about_exec(struct fake_supervisor *s, struct conn *c, struct order *o,
                          struct fake_exec *x)
{
    if (o->type == SUP_ATTACH) {
        attach(c, o);
        send_about(c, SUP_ATTACHED, o->seq, x);
    } else if (o->type == SUP_DETACH) {
        detach(c, x->id);
    } else if (o->type == SUP_ACK) {
        struct fake_attachment *a = find_attachment(c, x->id);

        if (a)
            a->in_flight = false;
    } else if (o->type == SUP_SIGNAL || o->type == SUP_KILL) {
        bool live = !x->ended;

        fake_exec_end(x, o->type == SUP_KILL ? (enum end_cause)o->cause : END_SIGNALED, -1,
                      o->type == SUP_KILL ? SIGKILL : (int)o->sig);
        send_result(c, o->seq, NULL, -1);
        if (live)
            report_end(s, x);
    } else if (o->type == SUP_STDIN_CLOSE || o->type == SUP_RESIZE) {
        send_result(c, o->seq, NULL, -1);
    } else {
        return false;
    }
    return true;
}

static void do_stats(struct conn *c, const struct order *o)
{
    struct sup_writer w = {0};

    sup_begin(&w, SUP_STATS, o->seq);
    sup_put_str(&w, SUP_TAG_STAT, "memory=4096");
    sup_put_str(&w, SUP_TAG_STAT, "pids=1");
    send_msg(c, &w, -1);
}

/* Port 7 answers with one word and closes. All other ports refuse. */
static void do_dial(struct conn *c, const struct order *o)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int pair[2];

    if (o->port != 7 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        err_set(&err, ERR_NOT_FOUND, "nothing listens on port %u", (unsigned)o->port);
        send_result(c, o->seq, &err, -1);
        return;
    }
    fd_write_all(pair[1], "fake\n", 5);
    fd_close(pair[1]);
    send_result(c, o->seq, NULL, pair[0]);
    fd_close(pair[0]);
}

/* Out: an empty tar; in: reads to the end. */
static void do_copy(struct conn *c, const struct order *o)
{
    char block[1024] = {0};

    if (o->direction)
        while (read(o->fd, block, sizeof(block)) > 0)
            ;
    else
        fd_write_all(o->fd, block, sizeof(block));
    send_result(c, o->seq, NULL, -1);
}

/* The path of the request for a file operation; owned. */
static char *asked_path(int fd)
{
    _cleanup_buf_ struct buf in = BUF_INIT(FILES_HEAD_SIZE + FILES_MESSAGE_MAX);
    struct files_message m = {0};
    struct files_reader r;
    struct files_field f;

    while (files_parse(buf_data(&in), in.len, false, &m, NULL) == 0) {
        char *p = buf_reserve(&in, 4096);
        ssize_t n = p ? read(fd, p, 4096) : 0;

        if (n <= 0)
            return NULL;
        buf_commit(&in, (size_t)n);
    }
    r = files_fields(&m);
    while (m.data && files_next(&r, &f, NULL) > 0)
        if (f.tag == FILES_TAG_PATH)
            return xstrndup(f.data, f.length);
    return NULL;
}

/* A helper that hostile code has taken over: the bytes of its answer are the path, in hexadecimal
 * digits behind "/lie/". */
static void do_files(struct conn *c, const struct order *o)
{
    _cleanup_free_ char *path = asked_path(o->fd);
    _cleanup_err_ struct err err = ERR_INIT;
    bool lie = path && strncmp(path, "/lie/", 5) == 0;

    for (const char *p = path + 5; lie && p[0] && p[1]; p += 2) {
        char byte = (char)(text_hex_digit(p[0]) << 4 | text_hex_digit(p[1]));

        fd_write_all(o->fd, &byte, 1);
    }
    if (!lie)
        err_set(&err, ERR_UNSUPPORTED, "the fake engine has no files");
    send_result(c, o->seq, lie ? NULL : &err, -1);
}

static void do_order(struct fake_supervisor *s, struct conn *c, struct order *o)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct fake_exec *x = *o->req.id ? find_exec(s, o->req.id) : NULL;

    if (o->type == SUP_HELLO) {
        return; /* ours was sent when the connection came */
    } else if (o->type == SUP_EXEC || o->type == SUP_EXEC_LARGE) {
        do_exec(s, c, o);
    } else if (x && do_about_exec(s, c, o, x)) {
        return;
    } else if (o->type == SUP_STATS) {
        do_stats(c, o);
    } else if (o->type == SUP_DIAL) {
        do_dial(c, o);
    } else if (o->type == SUP_COPY || o->type == SUP_COPY_AS) {
        do_copy(c, o);
    } else if (o->type == SUP_FILES) {
        do_files(c, o);
    } else if (o->type == SUP_PAUSE || o->type == SUP_RESUME) {
        s->paused = o->type == SUP_PAUSE;
        send_result(c, o->seq, NULL, -1);
    } else if (o->type == SUP_STOP) {
        s->stopping = true;
        send_result(c, o->seq, NULL, -1);
    } else if (o->type == SUP_LISTENER && atomic_load(&ends_at_listener)) {
        s->killed = true;
    } else {
        err_set(&err, ERR_NOT_FOUND, "no exec '%s'", o->req.id);
        send_result(c, o->seq, &err, -1);
    }
}

static bool read_order(struct fake_supervisor *s, struct conn *c, char *packet)
{
    struct order o = {.fd = -1};
    struct sup_reader rd;
    struct sup_value v;
    size_t n_fds = 1;
    ssize_t n;
    bool ok;

    n = fd_recv(c->fd, packet, SUP_MSG_MAX, &o.fd, &n_fds, 0);
    ok = n > 0 && sup_read(&rd, packet, (size_t)n, NULL) >= 0;
    if (ok) {
        int r;

        o.type = rd.head.type;
        o.seq = rd.head.seq;
        while ((r = sup_next(&rd, &v, NULL)) > 0)
            order_field(&o, &v);
        ok = r >= 0;
    }
    if (ok)
        do_order(s, c, &o);
    exec_request_done(&o.req);
    fd_close(o.fd);
    return ok;
}

/* ---- the thread ---- */

static void add_conn(struct fake_supervisor *s, int fd, bool ready)
{
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++) {
        if (s->conns[i].fd >= 0)
            continue;
        s->conns[i].fd = fd;
        send_hello(s, &s->conns[i]);
        if (ready && s->conns[i].fd >= 0)
            send_plain(&s->conns[i], SUP_READY);
        return;
    }
    fd_close(fd);
}

/* False: this supervisor must die. */
static bool read_control(struct fake_supervisor *s)
{
    size_t n = 1;
    int fd = -1;
    char c;

    if (fd_recv(s->control_in, &c, 1, &fd, &n, 0) <= 0)
        return false;
    if (n == 1)
        add_conn(s, fd, false);
    return true;
}

static int next_timeout(const struct fake_supervisor *s)
{
    struct deadline d = {DEADLINE_NEVER};

    for (const struct fake_exec *x = s->execs; x; x = x->next)
        d.at = MIN(d.at, fake_exec_next(x).at);
    return deadline_ms(&d);
}

static void serve_execs(struct fake_supervisor *s, const struct pollfd *polls)
{
    size_t i = 1 + FAKE_CONNS_MAX;

    /* Runs before a new exec is put in front of the list: the order is still that of the poll
     * array. */
    for (struct fake_exec *x = s->execs; x; x = x->next, i++) {
        if (x->ended || s->paused)
            continue;
        if (x->stdin_fd >= 0 && polls[i].revents)
            fake_exec_on_stdin(x);
        if (!x->ended)
            fake_exec_on_time(x);
        if (x->ended)
            report_end(s, x);
    }
}

static size_t fill_polls(const struct fake_supervisor *s, struct pollfd *polls)
{
    size_t n = 1 + FAKE_CONNS_MAX;

    polls[0] = (struct pollfd){.fd = s->control_in, .events = POLLIN};
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++)
        polls[1 + i] = (struct pollfd){.fd = s->conns[i].fd, .events = POLLIN};
    for (const struct fake_exec *x = s->execs; x; x = x->next)
        polls[n++] = (struct pollfd){.fd = s->paused ? -1 : x->stdin_fd, .events = POLLIN};
    return n;
}

static bool turn(struct fake_supervisor *s, char *packet)
{
    struct pollfd polls[1 + FAKE_CONNS_MAX + FAKE_EXECS_MAX];
    size_t n = fill_polls(s, polls);

    if (poll(polls, n, next_timeout(s)) < 0)
        return errno == EINTR;
    serve_execs(s, polls);
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++) {
        struct conn *c = &s->conns[i];

        if (c->fd >= 0 && polls[1 + i].revents && !read_order(s, c, packet))
            conn_close(c);
        if (c->fd >= 0)
            send_output(s, c);
    }
    return !polls[0].revents || read_control(s);
}

static void stop_all(struct fake_supervisor *s)
{
    for (struct fake_exec *x = s->execs; x; x = x->next) {
        if (x->ended)
            continue;
        fake_exec_end(x, END_SANDBOX_STOPPED, -1, SIGKILL);
        send_ended(s, x);
    }
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++)
        if (s->conns[i].fd >= 0)
            send_plain(&s->conns[i], SUP_STOPPED);
}

static void *supervisor_main(void *arg)
{
    struct fake_supervisor *s = arg;
    _cleanup_free_ char *packet = xmalloc(SUP_MSG_MAX);

    while (!s->stopping && !s->killed && turn(s, packet))
        ;
    if (s->stopping)
        stop_all(s);
    atomic_store(&s->alive, false);
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++)
        conn_close(&s->conns[i]);
    return NULL;
}

/* ---- outside ---- */

static int open_exec_dir(const char *exec_root, const char *id)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", exec_root, id);

    mkdir(path, 0700);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

struct fake_supervisor *fake_supervisor_start(const struct sandbox_request *req,
                                              const char *exec_root, uint64_t journal_budget,
                                              int conn)
{
    struct fake_supervisor *s = xnew0(struct fake_supervisor);
    int pair[2] = {-1, -1};

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        abort(); /* the test machine is out of descriptors */
    s->control = pair[0];
    s->control_in = pair[1];
    s->budget = journal_budget;
    s->ephemeral = req->ephemeral;
    snprintf(s->id, sizeof(s->id), "%s", req->id);
    snprintf(s->hash, sizeof(s->hash), "%s", req->hash);
    s->exec_dirfd = open_exec_dir(exec_root, req->id);
    for (size_t i = 0; i < FAKE_CONNS_MAX; i++)
        s->conns[i].fd = -1;
    atomic_init(&s->alive, true);
    add_conn(s, conn, true);
    if (pthread_create(&s->thread, NULL, supervisor_main, s) != 0)
        abort();
    return s;
}

void fake_supervisor_connect(struct fake_supervisor *s, int conn)
{
    fd_send(s->control, "c", 1, &conn, 1, 0);
    fd_close(conn);
}

bool fake_supervisor_alive(struct fake_supervisor *s)
{
    return atomic_load(&s->alive);
}

void fake_supervisor_end(struct fake_supervisor *s)
{
    if (!s)
        return;
    s->control = fd_close(s->control);
    pthread_join(s->thread, NULL);
    fd_close(s->control_in);
    fd_close(s->exec_dirfd);
    while (s->execs) {
        struct fake_exec *x = s->execs;

        s->execs = x->next;
        fake_exec_free(x);
    }
    free(s);
}
