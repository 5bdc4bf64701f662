/*
 * States: DOWN -> STARTING (spawned) -> UP (it said READY) -> ENDING (its line has ended, or we cut
 * it) -> DOWN (reaped). Questions and sockets that come before UP wait for it; when it ends
 * instead, they are told.
 */
#include "daemon/packages/packages-proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/packages/packages-process.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/os/pidfd.h"
#include "proto/packages.h"

#define START_TIMEOUT (20 * USEC_PER_SEC)
#define ANSWER_TIMEOUT (60 * USEC_PER_SEC)
#define STATS_TIMEOUT (5 * USEC_PER_SEC)     /* answered at once by one that is well */
#define VERIFY_TIMEOUT (1800 * USEC_PER_SEC) /* every file is read */
#define STEADY (10 * USEC_PER_SEC)           /* one that was up for so long did not fail to start */
#define PAUSE_MIN (250 * USEC_PER_MSEC)
#define PAUSE_MAX (30 * USEC_PER_SEC)
#define PATIENCE (2 * USEC_PER_SEC) /* who connects in a pause waits for so long at most */
#define END_GRACE_MS 3000

enum { PACKET_MAX = 64 << 10, ANSWER_MAX = 64 << 20, READS_PER_TURN = 32, PAUSE_DOUBLINGS = 7 };

enum packages_state { STATE_DOWN, STATE_STARTING, STATE_UP, STATE_ENDING };

struct proxied_sandbox {
    struct proxied_sandbox *next;
    struct packages_proxy *k;
    char *id;
    int fd;
    struct loop_watch *watch; /* NULL: cannot be watched */
    bool handed;              /* the registry has it */
    bool waiting;             /* somebody connects: to be handed over */
};

struct packages_request {
    struct packages_request *next;
    uint64_t seq;
    struct sup_writer w; /* until it is sent */
    int fd;              /* goes with it; owned, or -1 */
    bool sent;
    uint64_t timeout;
    struct deadline by; /* counts from when it is sent */
    char *box;          /* LISTEN: whose; else NULL */
    packages_proxy_fn done;
    void *arg;
};

struct packages_proxy {
    struct packages_proxy_config config;
    char *program, *settings;
    char **env;
    enum packages_state state;
    int pidfd, control;
    struct loop_watch *process, *line;
    struct loop_timer *failed; /* a start that failed at once is told from the loop */
    struct loop_timer *retry;  /* somebody waits for the end of a pause */
    uint64_t last_seq, since;
    unsigned failures;
    uint64_t retry_at;
    char *trouble; /* of the last try; NULL */
    bool was_up;   /* this run has said READY */
    bool said;     /* this run has said by itself why it ends */
    struct proxied_sandbox *boxes;
    struct packages_request *first, **last;
};

static void packages_proxy_start(struct packages_proxy *k);
static void packages_proxy_flush(struct packages_proxy *k);
static bool packages_proxy_read_one(struct packages_proxy *k);

static void packages_proxy_set_trouble(struct packages_proxy *k, const char *text)
{
    _cleanup_free_ char *old = k->trouble;
    _cleanup_free_ char *message = xasprintf("the package registry does not run: %s", text);

    k->trouble = xstrdup(text);
    if (!old || !STREQ(old, text))
        k->config.on_warning(k->config.arg, message);
}

/* ---- requests ---- */

static void packages_proxy_request_free(struct packages_request *q)
{
    sup_writer_done(&q->w);
    fd_close(q->fd);
    free(q->box);
    free(q);
}

/* Takes the fd. The writer is begun by the caller's next lines. */
static struct packages_request *packages_proxy_request_add(struct packages_proxy *k,
                                                           enum packages_msg_type type, int fd,
                                                           uint64_t timeout)
{
    struct packages_request *q = xnew0(struct packages_request);

    q->seq = ++k->last_seq;
    q->fd = fd;
    q->timeout = timeout;
    q->by = deadline_in(timeout + START_TIMEOUT);
    sup_begin(&q->w, (enum sup_msg_type)type, q->seq);
    *k->last = q;
    k->last = &q->next;
    return q;
}

static struct packages_request *packages_proxy_request_take(struct packages_proxy *k,
                                                            struct packages_request **at)
{
    struct packages_request *q = *at;

    *at = q->next;
    if (!*at)
        k->last = at;
    return q;
}

static struct packages_request **packages_proxy_request_find(struct packages_proxy *k, uint64_t seq)
{
    struct packages_request **p = &k->first;

    while (*p && (*p)->seq != seq)
        p = &(*p)->next;
    return p;
}

static void packages_proxy_request_tell(struct packages_request *q, const struct err *err,
                                        const char *json)
{
    if (q->done)
        q->done(q->arg, err, json);
    packages_proxy_request_free(q);
}

/* done functions may ask again: only what is there now is told. */
static void packages_proxy_fail_all(struct packages_proxy *k, const char *why)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct packages_request *q = k->first;

    k->first = NULL;
    k->last = &k->first;
    err_set(&err, ERR_ENGINE, "the package registry does not run: %s", why);
    while (q) {
        struct packages_request *next = q->next;

        packages_proxy_request_tell(q, &err, NULL);
        q = next;
    }
}

/* ---- sockets ---- */

static struct proxied_sandbox **packages_proxy_box_find(struct packages_proxy *k, const char *id)
{
    struct proxied_sandbox **p = &k->boxes;

    while (*p && !STREQ((*p)->id, id))
        p = &(*p)->next;
    return p;
}

static void packages_proxy_box_watch(struct proxied_sandbox *b)
{
    b->handed = b->waiting = false;
    if (b->watch)
        loop_watch_set(b->watch, LOOP_READ);
}

/* Whoever waits there learns at once that nobody answers, and its tool says so. */
static void packages_proxy_box_refuse(struct proxied_sandbox *b)
{
    int fd;

    while ((fd = accept4(b->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        fd_close(fd);
    packages_proxy_box_watch(b);
}

static void packages_proxy_box_hand_over(struct proxied_sandbox *b)
{
    int fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 0);
    struct packages_request *q;

    if (fd < 0) {
        packages_proxy_box_refuse(b);
        return;
    }
    q = packages_proxy_request_add(b->k, PACKAGES_LISTEN, fd, ANSWER_TIMEOUT);
    q->box = xstrdup(b->id);
    sup_put_str(&q->w, SUP_TAG_SANDBOX, b->id);
    b->waiting = false;
    b->handed = true;
    packages_proxy_flush(b->k);
}

static void packages_proxy_box_on_connection(void *arg, int events)
{
    struct proxied_sandbox *b = arg;
    struct packages_proxy *k = b->k;

    uint64_t now = time_mono();

    (void)events;
    if (k->state == STATE_DOWN && now + PATIENCE < k->retry_at) {
        packages_proxy_box_refuse(b);
        return;
    }
    loop_watch_set(b->watch, 0);
    b->waiting = true;
    if (k->state == STATE_DOWN)
        loop_timer_set(k->retry, k->retry_at > now ? k->retry_at - now : 0, false);
    else if (k->state == STATE_UP)
        packages_proxy_box_hand_over(b);
}

static void packages_proxy_box_free(struct proxied_sandbox *b)
{
    loop_watch_free(b->watch);
    fd_close(b->fd);
    free(b->id);
    free(b);
}

void packages_proxy_attach(struct packages_proxy *k, const char *sandbox, int fd)
{
    struct proxied_sandbox *b = xnew0(struct proxied_sandbox);

    packages_proxy_forget(k, sandbox);
    b->k = k;
    b->id = xstrdup(sandbox);
    b->fd = fd;
    b->watch = loop_watch_new(k->config.loop, fd, packages_proxy_box_on_connection, b);
    b->next = k->boxes;
    k->boxes = b;
    packages_proxy_box_watch(b);
}

void packages_proxy_forget(struct packages_proxy *k, const char *sandbox)
{
    struct proxied_sandbox **at = packages_proxy_box_find(k, sandbox), *b = *at;

    if (!b)
        return;
    *at = b->next;
    if (b->handed && k->state == STATE_UP) {
        struct packages_request *q =
            packages_proxy_request_add(k, PACKAGES_FORGET, -1, ANSWER_TIMEOUT);

        sup_put_str(&q->w, SUP_TAG_SANDBOX, sandbox);
        packages_proxy_flush(k);
    }
    packages_proxy_box_free(b);
}

/* ---- the process ---- */

static void packages_proxy_cut(struct packages_proxy *k)
{
    loop_watch_free(TAKE_PTR(k->line));
    k->control = fd_close(k->control);
    k->state = STATE_ENDING;
    pidfd_signal(k->pidfd, SIGKILL);
}

static void packages_proxy_count_failure(struct packages_proxy *k)
{
    uint64_t pause = PAUSE_MIN;

    if (time_mono() - k->since >= STEADY)
        k->failures = 0;
    /* The first one may be an accident: whoever comes next tries at once. */
    if (k->failures++)
        pause <<= MIN(k->failures - 2, PAUSE_DOUBLINGS);
    else
        pause = 0;
    k->retry_at = time_mono() + MIN(pause, PAUSE_MAX);
}

/* It has ended, or could not be started. */
static void packages_proxy_down(struct packages_proxy *k, const char *why)
{
    bool was_up = k->was_up;

    k->state = STATE_DOWN;
    k->was_up = false;
    packages_proxy_count_failure(k);
    packages_proxy_set_trouble(k, why);
    packages_proxy_fail_all(k, why);
    for (struct proxied_sandbox *b = k->boxes; b; b = b->next) {
        if (b->waiting && !was_up)
            packages_proxy_box_refuse(b);
        else
            packages_proxy_box_watch(b);
    }
}

static char *packages_proxy_describe_end(int status)
{
    if (WIFSIGNALED(status))
        return xasprintf("it was ended by signal %d", WTERMSIG(status));
    return xasprintf("it ended by itself with status %d", WEXITSTATUS(status));
}

static void packages_proxy_on_process_end(void *arg, int events)
{
    _cleanup_free_ char *why = NULL, *told = NULL;
    struct packages_proxy *k = arg;
    int status = 0;

    (void)events;
    if (pidfd_reap(k->pidfd, false, &status, NULL) == 0)
        return;
    /* Its own last words, if it said why it cannot start: its end may be the first news. */
    while (k->line && packages_proxy_read_one(k))
        ;
    told = k->said ? xstrdup(k->trouble) : NULL;
    why = told ? NULL : packages_proxy_describe_end(status);
    loop_watch_free(TAKE_PTR(k->process));
    loop_watch_free(TAKE_PTR(k->line));
    k->pidfd = fd_close(k->pidfd);
    k->control = fd_close(k->control);
    packages_proxy_down(k, told ? told : why);
}

/* ---- the line ---- */

struct packages_incoming {
    struct sup_reader head;
    const char *json;
    struct err err;
};

static int packages_proxy_parse(const char *packet, size_t len, struct packages_incoming *m,
                                struct err *err)
{
    struct sup_value v;
    int r = sup_read(&m->head, packet, len, err);

    while (r >= 0 && (r = sup_next(&m->head, &v, err)) > 0)
        if (v.tag == PACKAGES_TAG_JSON)
            m->json = v.data;
    if (r >= 0)
        sup_read_err(packet, len, &m->err);
    return r;
}

static void packages_proxy_on_ready(struct packages_proxy *k)
{
    k->state = STATE_UP;
    k->was_up = true;
    k->since = time_mono();
    free(TAKE_PTR(k->trouble));
    for (struct proxied_sandbox *b = k->boxes; b; b = b->next)
        if (b->waiting)
            packages_proxy_box_hand_over(b);
    packages_proxy_flush(k);
}

/* The document beside an answer; "" when there is none. */
static int packages_proxy_read_document(int fd, char **ret, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0) {
        *ret = xstrdup("");
        return 0;
    }
    if (fstat(fd, &st) < 0 || st.st_size > ANSWER_MAX)
        return err_set(err, ERR_LIMIT, "the registry's answer is over %d bytes", ANSWER_MAX);
    text = xmalloc((size_t)st.st_size + 1);
    n = pread(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return err_sys(err, errno, "read the registry's answer");
    text[n] = '\0';
    *ret = TAKE_PTR(text);
    return 0;
}

/* A socket that it does not take stays with us. */
static void packages_proxy_on_listen_failed(struct packages_proxy *k, const char *id,
                                            const struct err *err)
{
    _cleanup_free_ char *message =
        xasprintf("sandbox id %s has no package registry: %s", id, err->msg);
    struct proxied_sandbox *b = *packages_proxy_box_find(k, id);

    k->config.on_warning(k->config.arg, message);
    if (b)
        packages_proxy_box_refuse(b);
}

static void packages_proxy_on_result(struct packages_proxy *k, const struct packages_incoming *m,
                                     int fd)
{
    struct packages_request **at = packages_proxy_request_find(k, m->head.head.seq), *q;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *json = NULL;

    if (!*at)
        return; /* it was told as timed out */
    q = packages_proxy_request_take(k, at);
    if (m->err.code) {
        if (q->box)
            packages_proxy_on_listen_failed(k, q->box, &m->err);
        packages_proxy_request_tell(q, &m->err, NULL);
    } else if (packages_proxy_read_document(fd, &json, &err) < 0) {
        packages_proxy_request_tell(q, &err, NULL);
    } else {
        packages_proxy_request_tell(q, NULL, json);
    }
}

static void packages_proxy_dispatch(struct packages_proxy *k, const struct packages_incoming *m,
                                    int fd)
{
    switch ((enum packages_msg_type)m->head.head.type) {
    case PACKAGES_READY:
        if (k->state == STATE_STARTING)
            packages_proxy_on_ready(k);
        break;
    case PACKAGES_FAILED:
        packages_proxy_set_trouble(k, m->err.code ? m->err.msg : "it does not say why");
        k->said = true;
        packages_proxy_cut(k);
        break;
    case PACKAGES_RESULT:
        packages_proxy_on_result(k, m, fd);
        break;
    case PACKAGES_EVENT:
        if (m->json)
            k->config.on_event(k->config.arg, m->json);
        break;
    case PACKAGES_LISTEN:
    case PACKAGES_FORGET:
    case PACKAGES_STATS:
    case PACKAGES_LIST:
    case PACKAGES_SHOW:
    case PACKAGES_VERIFY:
    case PACKAGES_PRUNE:
    default: /* not for us, or newer than us */
        break;
    }
}

/* False: nothing more for now. */
static bool packages_proxy_read_one(struct packages_proxy *k)
{
    static _Alignas(8) char packet[PACKET_MAX];
    struct packages_incoming m = {.err = ERR_INIT};
    _cleanup_close_ int fd = -1;
    size_t n_fds = 1;
    ssize_t n;

    n = fd_recv(k->control, packet, sizeof(packet), &fd, &n_fds, MSG_DONTWAIT);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    if (n <= 0 || packages_proxy_parse(packet, (size_t)n, &m, NULL) < 0)
        packages_proxy_cut(k);
    else
        packages_proxy_dispatch(k, &m, n_fds ? fd : -1);
    err_done(&m.err);
    return k->line != NULL;
}

static void packages_proxy_flush(struct packages_proxy *k)
{
    bool full = false;

    if (k->state != STATE_UP)
        return;
    for (struct packages_request *q = k->first; q && !full; q = q->next) {
        if (q->sent)
            continue;
        if (sup_finish(&q->w, NULL) >= 0)
            full = fd_send(k->control, buf_data(&q->w.buf), q->w.buf.len, &q->fd, q->fd >= 0,
                           MSG_DONTWAIT) == -EAGAIN;
        if (full)
            break;
        q->sent = true; /* what could not be sent will be told by the end of the line or in time */
        q->by = deadline_in(q->timeout);
        q->fd = fd_close(q->fd);
        sup_writer_done(&q->w);
    }
    loop_watch_set(k->line, LOOP_READ | (full ? LOOP_WRITE : 0));
}

static void packages_proxy_on_line(void *arg, int events)
{
    struct packages_proxy *k = arg;

    if (events & LOOP_READ)
        for (int i = 0; i < READS_PER_TURN && packages_proxy_read_one(k); i++)
            ;
    if (k->line && events & LOOP_WRITE)
        packages_proxy_flush(k);
}

/* ---- start ---- */

static void packages_proxy_start_failed(void *arg)
{
    struct packages_proxy *k = arg;
    _cleanup_free_ char *why = k->trouble ? xstrdup(k->trouble) : xstrdup("it cannot be started");

    packages_proxy_down(k, why);
}

static void packages_proxy_retry(void *arg)
{
    struct packages_proxy *k = arg;

    if (k->state == STATE_DOWN)
        packages_proxy_start(k);
}

static int packages_proxy_start_now(struct packages_proxy *k, struct err *err)
{
    int r = packages_spawn(k->program, k->env, k->settings, &k->pidfd, &k->control, err);

    if (r < 0)
        return r;
    k->process = loop_watch_new(k->config.loop, k->pidfd, packages_proxy_on_process_end, k);
    k->line = loop_watch_new(k->config.loop, k->control, packages_proxy_on_line, k);
    if (!k->process || !k->line)
        return err_set(err, ERR_SYSTEM, "the process cannot be watched");
    loop_watch_set(k->process, LOOP_READ);
    loop_watch_set(k->line, LOOP_READ);
    return 0;
}

static void packages_proxy_start(struct packages_proxy *k)
{
    _cleanup_err_ struct err err = ERR_INIT;

    k->state = STATE_STARTING;
    k->said = false;
    k->since = time_mono();
    if (packages_proxy_start_now(k, &err) >= 0)
        return;
    k->state = STATE_ENDING;
    packages_proxy_set_trouble(k, err.msg);
    if (k->pidfd >= 0) {
        pidfd_signal(k->pidfd, SIGKILL);
        pidfd_reap(k->pidfd, true, NULL, NULL);
    }
    loop_watch_free(TAKE_PTR(k->process));
    loop_watch_free(TAKE_PTR(k->line));
    k->pidfd = fd_close(k->pidfd);
    k->control = fd_close(k->control);
    loop_timer_set(k->failed, 0, false);
}

void packages_proxy_tick(struct packages_proxy *k)
{
    _cleanup_err_ struct err late = ERR_INIT;

    if (k->state == STATE_STARTING && time_mono() - k->since > START_TIMEOUT) {
        packages_proxy_set_trouble(k, "it does not say that it is ready");
        k->said = true;
        packages_proxy_cut(k);
        return;
    }
    err_set(&late, ERR_TIMEOUT, "the package registry does not answer");
    for (struct packages_request **at = &k->first; *at;) {
        if (deadline_passed(&(*at)->by))
            packages_proxy_request_tell(packages_proxy_request_take(k, at), &late, NULL);
        else
            at = &(*at)->next;
    }
}

/* ---- for everybody ---- */

struct packages_proxy *packages_proxy_new(const struct packages_proxy_config *config)
{
    struct packages_proxy *k = xnew0(struct packages_proxy);

    k->config = *config;
    k->program = xstrdup(config->program);
    k->settings = xstrdup(config->settings);
    k->env = strv_copy(config->env);
    k->pidfd = k->control = -1;
    k->last = &k->first;
    k->failed = loop_timer_new(config->loop, packages_proxy_start_failed, k);
    k->retry = loop_timer_new(config->loop, packages_proxy_retry, k);
    return k;
}

static void packages_proxy_await_end(struct packages_proxy *k)
{
    struct pollfd p = {.fd = k->pidfd, .events = POLLIN};

    if (k->pidfd < 0)
        return;
    if (poll(&p, 1, END_GRACE_MS) <= 0)
        pidfd_signal(k->pidfd, SIGKILL);
    pidfd_reap(k->pidfd, true, NULL, NULL);
    fd_close(k->pidfd);
}

void packages_proxy_free(struct packages_proxy *k)
{
    if (!k)
        return;
    loop_timer_free(k->failed);
    loop_timer_free(k->retry);
    loop_watch_free(k->process);
    loop_watch_free(k->line);
    fd_close(k->control);
    packages_proxy_await_end(k);
    while (k->boxes) {
        struct proxied_sandbox *b = k->boxes;

        k->boxes = b->next;
        packages_proxy_box_free(b);
    }
    while (k->first)
        packages_proxy_request_free(packages_proxy_request_take(k, &k->first));
    strv_free(k->env);
    free(k->trouble);
    free(k->program);
    free(k->settings);
    free(k);
}

bool packages_proxy_serves(const struct packages_proxy *k, const char *sandbox)
{
    const struct proxied_sandbox *b = k->boxes;

    while (b && !STREQ(b->id, sandbox))
        b = b->next;
    return b && b->handed && k->state == STATE_UP;
}

const char *packages_proxy_trouble(const struct packages_proxy *k)
{
    return k->state == STATE_UP ? NULL : k->trouble;
}

void packages_proxy_ask(struct packages_proxy *k, const struct packages_proxy_ask *ask,
                        packages_proxy_fn done, void *arg)
{
    static const enum packages_msg_type types[] = {
        [PACKAGES_PROXY_STATS] = PACKAGES_STATS, [PACKAGES_PROXY_LIST] = PACKAGES_LIST,
        [PACKAGES_PROXY_SHOW] = PACKAGES_SHOW,   [PACKAGES_PROXY_VERIFY] = PACKAGES_VERIFY,
        [PACKAGES_PROXY_PRUNE] = PACKAGES_PRUNE,
    };
    uint64_t timeout = ask->what == PACKAGES_PROXY_VERIFY  ? VERIFY_TIMEOUT
                       : ask->what == PACKAGES_PROXY_STATS ? STATS_TIMEOUT
                                                           : ANSWER_TIMEOUT;
    struct packages_request *q = packages_proxy_request_add(k, types[ask->what], -1, timeout);

    sup_put_str(&q->w, SUP_TAG_PATH, ask->subject);
    if (ask->keep)
        sup_put_u64(&q->w, PACKAGES_TAG_KEEP, *ask->keep);
    if (ask->unused_for)
        sup_put_u64(&q->w, PACKAGES_TAG_AGE, ask->unused_for);
    q->done = done;
    q->arg = arg;
    if (k->state == STATE_DOWN)
        packages_proxy_start(k);
    else
        packages_proxy_flush(k);
}
