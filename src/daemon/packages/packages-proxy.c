/*
 * States: DOWN -> STARTING (spawned) -> UP (it sent READY) -> ENDING (the control socket is closed)
 * -> DOWN (reaped). Requests and sockets that come before UP wait for it. When the process ends
 * instead, they fail.
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
#define STATS_TIMEOUT (5 * USEC_PER_SEC)     /* a healthy process answers at once */
#define VERIFY_TIMEOUT (1800 * USEC_PER_SEC) /* every file is read */
#define STEADY (10 * USEC_PER_SEC)           /* a run of this length counts as a successful start */
#define PAUSE_MIN (250 * USEC_PER_MSEC)
#define PAUSE_MAX (30 * USEC_PER_SEC)
#define CONNECT_PATIENCE (2 * USEC_PER_SEC) /* a connection in a pause waits at most this long */
#define END_GRACE_MS 3000

enum { PACKET_MAX = 64 << 10, ANSWER_MAX = 64 << 20, READS_PER_TURN = 32, PAUSE_DOUBLINGS = 7 };

enum packages_state { STATE_DOWN, STATE_STARTING, STATE_UP, STATE_ENDING };

struct proxied_sandbox {
    struct proxied_sandbox *next;
    struct packages_proxy *proxy;
    char *id;
    int fd;
    struct loop_watch *watch; /* NULL: cannot be watched */
    bool handed;              /* ripcord-packages has the socket */
    bool owner_only;
    bool waiting; /* a client has connected: hand the socket over */
};

struct packages_proxy_request {
    struct packages_proxy_request *next;
    uint64_t seq;
    struct sup_writer w; /* until the request is sent */
    int fd;              /* sent with the request; owned, or -1 */
    bool sent;
    uint64_t timeout;
    struct deadline by; /* from the time of sending */
    char *sandbox;      /* LISTEN: the id of the sandbox; else NULL */
    packages_proxy_fn done;
    void *arg;
};

struct packages_proxy {
    struct packages_proxy_config config;
    char *program, *settings;
    char **env;
    enum packages_state state;
    int pidfd, control;
    struct loop_watch *process_watch, *control_watch;
    struct loop_timer *failed; /* reports a failed start from the loop */
    struct loop_timer *retry;  /* starts the process at the end of a pause */
    uint64_t last_seq, since;
    unsigned failures;
    uint64_t retry_at;
    char *trouble;  /* why the last try failed, or NULL */
    bool was_up;    /* this run has sent READY */
    bool explained; /* `trouble` says why this run ends */
    struct proxied_sandbox *sandboxes;
    struct packages_proxy_request *first, **last;
};

static void packages_proxy_start(struct packages_proxy *proxy);
static void packages_proxy_flush(struct packages_proxy *proxy);
static bool packages_proxy_read_one(struct packages_proxy *proxy);

static void packages_proxy_set_trouble(struct packages_proxy *proxy, const char *text)
{
    _cleanup_free_ char *old = proxy->trouble;
    _cleanup_free_ char *message = xasprintf("the package cache does not run: %s", text);

    proxy->trouble = xstrdup(text);
    if (!old || !STREQ(old, text))
        proxy->config.on_warning(proxy->config.arg, message);
}

/* ---- requests ---- */

static void packages_proxy_request_free(struct packages_proxy_request *q)
{
    sup_writer_done(&q->w);
    fd_close(q->fd);
    free(q->sandbox);
    free(q);
}

/* Takes the fd. The caller adds its fields to the writer. */
static struct packages_proxy_request *packages_proxy_request_add(struct packages_proxy *proxy,
                                                                 enum packages_msg_type type,
                                                                 int fd, uint64_t timeout)
{
    struct packages_proxy_request *q = xnew0(struct packages_proxy_request);

    q->seq = ++proxy->last_seq;
    q->fd = fd;
    q->timeout = timeout;
    q->by = deadline_in(timeout + START_TIMEOUT);
    sup_begin(&q->w, (enum sup_msg_type)type, q->seq);
    *proxy->last = q;
    proxy->last = &q->next;
    return q;
}

static struct packages_proxy_request *
packages_proxy_request_take(struct packages_proxy *proxy, struct packages_proxy_request **at)
{
    struct packages_proxy_request *q = *at;

    *at = q->next;
    if (!*at)
        proxy->last = at;
    return q;
}

static struct packages_proxy_request **packages_proxy_request_find(struct packages_proxy *proxy,
                                                                   uint64_t seq)
{
    struct packages_proxy_request **p = &proxy->first;

    while (*p && (*p)->seq != seq)
        p = &(*p)->next;
    return p;
}

static void packages_proxy_request_finish(struct packages_proxy_request *q, const struct err *err,
                                          const char *json)
{
    if (q->done)
        q->done(q->arg, err, json);
    packages_proxy_request_free(q);
}

/* The done functions may add new requests: only those of now fail. */
static void packages_proxy_fail_all(struct packages_proxy *proxy, const char *why)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct packages_proxy_request *q = proxy->first;

    proxy->first = NULL;
    proxy->last = &proxy->first;
    err_set(&err, ERR_ENGINE, "the package cache does not run: %s", why);
    while (q) {
        struct packages_proxy_request *next = q->next;

        packages_proxy_request_finish(q, &err, NULL);
        q = next;
    }
}

/* ---- sockets ---- */

static struct proxied_sandbox **packages_proxy_sandbox_find(struct packages_proxy *proxy,
                                                            const char *id)
{
    struct proxied_sandbox **p = &proxy->sandboxes;

    while (*p && !STREQ((*p)->id, id))
        p = &(*p)->next;
    return p;
}

static void packages_proxy_sandbox_watch(struct proxied_sandbox *s)
{
    s->handed = s->waiting = false;
    if (s->watch)
        loop_watch_set(s->watch, LOOP_READ);
}

/* Closes waiting connections, so that the tools in the sandbox fail at once. */
static void packages_proxy_sandbox_refuse(struct proxied_sandbox *s)
{
    int fd;

    while ((fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        fd_close(fd);
    packages_proxy_sandbox_watch(s);
}

static void packages_proxy_sandbox_hand_over(struct proxied_sandbox *s)
{
    int fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0);
    struct packages_proxy_request *q;

    if (fd < 0) {
        packages_proxy_sandbox_refuse(s);
        return;
    }
    q = packages_proxy_request_add(s->proxy, PACKAGES_LISTEN, fd, ANSWER_TIMEOUT);
    q->sandbox = xstrdup(s->id);
    sup_put_str(&q->w, SUP_TAG_SANDBOX, s->id);
    if (s->owner_only)
        sup_put_u64(&q->w, SUP_TAG_FLAGS, PACKAGES_LISTEN_OWNER);
    s->waiting = false;
    s->handed = true;
    packages_proxy_flush(s->proxy);
}

static void packages_proxy_sandbox_on_connection(void *arg, int events)
{
    struct proxied_sandbox *s = arg;
    struct packages_proxy *proxy = s->proxy;

    uint64_t now = time_mono();

    (void)events;
    if (proxy->state == STATE_DOWN && now + CONNECT_PATIENCE < proxy->retry_at) {
        packages_proxy_sandbox_refuse(s);
        return;
    }
    loop_watch_set(s->watch, 0);
    s->waiting = true;
    if (proxy->state == STATE_DOWN)
        loop_timer_set(proxy->retry, proxy->retry_at > now ? proxy->retry_at - now : 0, false);
    else if (proxy->state == STATE_UP)
        packages_proxy_sandbox_hand_over(s);
}

static void packages_proxy_sandbox_free(struct proxied_sandbox *s)
{
    loop_watch_free(s->watch);
    fd_close(s->fd);
    free(s->id);
    free(s);
}

void packages_proxy_attach(struct packages_proxy *proxy, const char *sandbox, int fd,
                           bool owner_only)
{
    struct proxied_sandbox *s = xnew0(struct proxied_sandbox);

    packages_proxy_forget(proxy, sandbox);
    s->proxy = proxy;
    s->id = xstrdup(sandbox);
    s->fd = fd;
    s->owner_only = owner_only;
    s->watch = loop_watch_new(proxy->config.loop, fd, packages_proxy_sandbox_on_connection, s);
    s->next = proxy->sandboxes;
    proxy->sandboxes = s;
    packages_proxy_sandbox_watch(s);
}

void packages_proxy_forget(struct packages_proxy *proxy, const char *sandbox)
{
    struct proxied_sandbox **at = packages_proxy_sandbox_find(proxy, sandbox), *s = *at;

    if (!s)
        return;
    *at = s->next;
    if (s->handed && proxy->state == STATE_UP) {
        struct packages_proxy_request *q =
            packages_proxy_request_add(proxy, PACKAGES_FORGET, -1, ANSWER_TIMEOUT);

        sup_put_str(&q->w, SUP_TAG_SANDBOX, sandbox);
        packages_proxy_flush(proxy);
    }
    packages_proxy_sandbox_free(s);
}

/* ---- the process ---- */

static void packages_proxy_cut(struct packages_proxy *proxy)
{
    loop_watch_free(TAKE_PTR(proxy->control_watch));
    proxy->control = fd_close(proxy->control);
    proxy->state = STATE_ENDING;
    pidfd_signal(proxy->pidfd, SIGKILL);
}

static void packages_proxy_count_failure(struct packages_proxy *proxy)
{
    uint64_t pause = PAUSE_MIN;

    if (time_mono() - proxy->since >= STEADY)
        proxy->failures = 0;
    /* The first failure may be an accident: the next connection starts the process at once. */
    if (proxy->failures++)
        pause <<= MIN(proxy->failures - 2, PAUSE_DOUBLINGS);
    else
        pause = 0;
    proxy->retry_at = time_mono() + MIN(pause, PAUSE_MAX);
}

/* The process has ended, or could not be started. */
static void packages_proxy_down(struct packages_proxy *proxy, const char *why)
{
    bool was_up = proxy->was_up;

    proxy->state = STATE_DOWN;
    proxy->was_up = false;
    packages_proxy_count_failure(proxy);
    packages_proxy_set_trouble(proxy, why);
    packages_proxy_fail_all(proxy, why);
    for (struct proxied_sandbox *s = proxy->sandboxes; s; s = s->next) {
        if (s->waiting && !was_up)
            packages_proxy_sandbox_refuse(s);
        else
            packages_proxy_sandbox_watch(s);
    }
}

static void packages_proxy_on_process_end(void *arg, int events)
{
    _cleanup_free_ char *why = NULL;
    struct packages_proxy *proxy = arg;
    int status = 0;

    (void)events;
    if (pidfd_reap(proxy->pidfd, false, &status, NULL) == 0)
        return;
    /* Reads a last message that says why it cannot start: the end may be reported first. */
    while (proxy->control_watch && packages_proxy_read_one(proxy))
        ;
    if (proxy->explained)
        why = xstrdup(proxy->trouble);
    else if (WIFSIGNALED(status))
        why = xasprintf("the process was killed by signal %d", WTERMSIG(status));
    else
        why = xasprintf("the process exited with status %d", WEXITSTATUS(status));
    loop_watch_free(TAKE_PTR(proxy->process_watch));
    loop_watch_free(TAKE_PTR(proxy->control_watch));
    proxy->pidfd = fd_close(proxy->pidfd);
    proxy->control = fd_close(proxy->control);
    packages_proxy_down(proxy, why);
}

/* ---- the control socket ---- */

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

    if (r < 0)
        return r;
    while ((r = sup_next(&m->head, &v, err)) > 0)
        if (v.tag == PACKAGES_TAG_JSON)
            m->json = v.data;
    if (r < 0)
        return r;
    sup_read_err(packet, len, &m->err);
    return 0;
}

static void packages_proxy_on_ready(struct packages_proxy *proxy)
{
    proxy->state = STATE_UP;
    proxy->was_up = true;
    proxy->since = time_mono();
    free(TAKE_PTR(proxy->trouble));
    for (struct proxied_sandbox *s = proxy->sandboxes; s; s = s->next)
        if (s->waiting)
            packages_proxy_sandbox_hand_over(s);
    packages_proxy_flush(proxy);
}

/* The JSON document that came with a result; "": none. */
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
        return err_set(err, ERR_LIMIT, "the response of the package cache is larger than %d bytes",
                       ANSWER_MAX);
    text = xmalloc((size_t)st.st_size + 1);
    n = pread(fd, text, (size_t)st.st_size, 0);
    if (n < 0)
        return err_sys(err, errno, "read the response of the package cache");
    text[n] = '\0';
    *ret = TAKE_PTR(text);
    return 0;
}

/* The process did not take the socket: the proxy watches it again. */
static void packages_proxy_on_listen_failed(struct packages_proxy *proxy, const char *id,
                                            const struct err *err)
{
    _cleanup_free_ char *message = xasprintf("sandbox id %s: no package cache (%s)", id, err->msg);
    struct proxied_sandbox *s = *packages_proxy_sandbox_find(proxy, id);

    proxy->config.on_warning(proxy->config.arg, message);
    if (s)
        packages_proxy_sandbox_refuse(s);
}

static void packages_proxy_on_result(struct packages_proxy *proxy,
                                     const struct packages_incoming *m, int fd)
{
    struct packages_proxy_request **at = packages_proxy_request_find(proxy, m->head.head.seq), *q;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *json = NULL;

    if (!*at)
        return; /* it has timed out */
    q = packages_proxy_request_take(proxy, at);
    if (m->err.code) {
        if (q->sandbox)
            packages_proxy_on_listen_failed(proxy, q->sandbox, &m->err);
        packages_proxy_request_finish(q, &m->err, NULL);
    } else if (packages_proxy_read_document(fd, &json, &err) < 0) {
        packages_proxy_request_finish(q, &err, NULL);
    } else {
        packages_proxy_request_finish(q, NULL, json);
    }
}

static void packages_proxy_dispatch(struct packages_proxy *proxy, const struct packages_incoming *m,
                                    int fd)
{
    switch ((enum packages_msg_type)m->head.head.type) {
    case PACKAGES_READY:
        if (proxy->state == STATE_STARTING)
            packages_proxy_on_ready(proxy);
        break;
    case PACKAGES_FAILED:
        packages_proxy_set_trouble(proxy, m->err.code ? m->err.msg : "the process did not say why");
        proxy->explained = true;
        packages_proxy_cut(proxy);
        break;
    case PACKAGES_RESULT:
        packages_proxy_on_result(proxy, m, fd);
        break;
    case PACKAGES_EVENT:
        if (m->json)
            proxy->config.on_event(proxy->config.arg, m->json);
        break;
    case PACKAGES_LISTEN:
    case PACKAGES_FORGET:
    case PACKAGES_STATS:
    case PACKAGES_LIST:
    case PACKAGES_SHOW:
    case PACKAGES_VERIFY:
    case PACKAGES_PRUNE:
    default: /* not for the daemon, or of a newer version */
        break;
    }
}

/* False: no further message for now. */
static bool packages_proxy_read_one(struct packages_proxy *proxy)
{
    static _Alignas(8) char packet[PACKET_MAX];
    struct packages_incoming m = {.err = ERR_INIT};
    _cleanup_close_ int fd = -1;
    size_t n_fds = 1;
    ssize_t n;

    n = fd_recv(proxy->control, packet, sizeof(packet), &fd, &n_fds, MSG_DONTWAIT);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    if (n <= 0 || packages_proxy_parse(packet, (size_t)n, &m, NULL) < 0)
        packages_proxy_cut(proxy);
    else
        packages_proxy_dispatch(proxy, &m, n_fds ? fd : -1);
    err_done(&m.err);
    return proxy->control_watch != NULL;
}

static void packages_proxy_flush(struct packages_proxy *proxy)
{
    bool full = false;

    if (proxy->state != STATE_UP)
        return;
    for (struct packages_proxy_request *q = proxy->first; q && !full; q = q->next) {
        if (q->sent)
            continue;
        if (sup_finish(&q->w, NULL) >= 0)
            full = fd_send(proxy->control, buf_data(&q->w.buf), q->w.buf.len, &q->fd, q->fd >= 0,
                           MSG_DONTWAIT) == -EAGAIN;
        if (full)
            break;
        q->sent = true; /* a failed send ends with the control socket, or times out */
        q->by = deadline_in(q->timeout);
        q->fd = fd_close(q->fd);
        sup_writer_done(&q->w);
    }
    loop_watch_set(proxy->control_watch, LOOP_READ | (full ? LOOP_WRITE : 0));
}

static void packages_proxy_on_control(void *arg, int events)
{
    struct packages_proxy *proxy = arg;

    if (events & LOOP_READ)
        for (int i = 0; i < READS_PER_TURN && packages_proxy_read_one(proxy); i++)
            ;
    if (proxy->control_watch && events & LOOP_WRITE)
        packages_proxy_flush(proxy);
}

/* ---- start ---- */

static void packages_proxy_start_failed(void *arg)
{
    struct packages_proxy *proxy = arg;
    _cleanup_free_ char *why =
        proxy->trouble ? xstrdup(proxy->trouble) : xstrdup("the process cannot be started");

    packages_proxy_down(proxy, why);
}

static void packages_proxy_retry(void *arg)
{
    struct packages_proxy *proxy = arg;

    if (proxy->state == STATE_DOWN)
        packages_proxy_start(proxy);
}

static int packages_proxy_try_start(struct packages_proxy *proxy, struct err *err)
{
    int r = packages_spawn(proxy->program, proxy->env, proxy->settings, &proxy->pidfd,
                           &proxy->control, err);

    if (r < 0)
        return r;
    proxy->process_watch =
        loop_watch_new(proxy->config.loop, proxy->pidfd, packages_proxy_on_process_end, proxy);
    proxy->control_watch =
        loop_watch_new(proxy->config.loop, proxy->control, packages_proxy_on_control, proxy);
    if (!proxy->process_watch || !proxy->control_watch)
        return err_set(err, ERR_SYSTEM, "cannot watch the process ripcord-packages");
    loop_watch_set(proxy->process_watch, LOOP_READ);
    loop_watch_set(proxy->control_watch, LOOP_READ);
    return 0;
}

static void packages_proxy_start(struct packages_proxy *proxy)
{
    _cleanup_err_ struct err err = ERR_INIT;

    proxy->state = STATE_STARTING;
    proxy->explained = false;
    proxy->since = time_mono();
    if (packages_proxy_try_start(proxy, &err) >= 0)
        return;
    proxy->state = STATE_ENDING;
    packages_proxy_set_trouble(proxy, err.msg);
    if (proxy->pidfd >= 0) {
        pidfd_signal(proxy->pidfd, SIGKILL);
        pidfd_reap(proxy->pidfd, true, NULL, NULL);
    }
    loop_watch_free(TAKE_PTR(proxy->process_watch));
    loop_watch_free(TAKE_PTR(proxy->control_watch));
    proxy->pidfd = fd_close(proxy->pidfd);
    proxy->control = fd_close(proxy->control);
    loop_timer_set(proxy->failed, 0, false);
}

void packages_proxy_tick(struct packages_proxy *proxy)
{
    _cleanup_err_ struct err late = ERR_INIT;

    if (proxy->state == STATE_STARTING && time_mono() - proxy->since > START_TIMEOUT) {
        packages_proxy_set_trouble(proxy, "the process was not ready in time");
        proxy->explained = true;
        packages_proxy_cut(proxy);
        return;
    }
    err_set(&late, ERR_TIMEOUT, "the package cache does not answer");
    for (struct packages_proxy_request **at = &proxy->first; *at;) {
        if (deadline_passed(&(*at)->by))
            packages_proxy_request_finish(packages_proxy_request_take(proxy, at), &late, NULL);
        else
            at = &(*at)->next;
    }
}

/* ---- interface ---- */

struct packages_proxy *packages_proxy_new(const struct packages_proxy_config *config)
{
    struct packages_proxy *proxy = xnew0(struct packages_proxy);

    proxy->config = *config;
    proxy->program = xstrdup(config->program);
    proxy->settings = xstrdup(config->settings);
    proxy->env = strv_copy(config->env);
    proxy->pidfd = proxy->control = -1;
    proxy->last = &proxy->first;
    proxy->failed = loop_timer_new(config->loop, packages_proxy_start_failed, proxy);
    proxy->retry = loop_timer_new(config->loop, packages_proxy_retry, proxy);
    return proxy;
}

static void packages_proxy_await_end(struct packages_proxy *proxy)
{
    struct pollfd p = {.fd = proxy->pidfd, .events = POLLIN};

    if (proxy->pidfd < 0)
        return;
    if (poll(&p, 1, END_GRACE_MS) <= 0)
        pidfd_signal(proxy->pidfd, SIGKILL);
    pidfd_reap(proxy->pidfd, true, NULL, NULL);
    fd_close(proxy->pidfd);
}

void packages_proxy_free(struct packages_proxy *proxy)
{
    if (!proxy)
        return;
    loop_timer_free(proxy->failed);
    loop_timer_free(proxy->retry);
    loop_watch_free(proxy->process_watch);
    loop_watch_free(proxy->control_watch);
    fd_close(proxy->control);
    packages_proxy_await_end(proxy);
    while (proxy->sandboxes) {
        struct proxied_sandbox *s = proxy->sandboxes;

        proxy->sandboxes = s->next;
        packages_proxy_sandbox_free(s);
    }
    while (proxy->first)
        packages_proxy_request_free(packages_proxy_request_take(proxy, &proxy->first));
    strv_free(proxy->env);
    free(proxy->trouble);
    free(proxy->program);
    free(proxy->settings);
    free(proxy);
}

bool packages_proxy_serves(const struct packages_proxy *proxy, const char *sandbox)
{
    const struct proxied_sandbox *s = proxy->sandboxes;

    while (s && !STREQ(s->id, sandbox))
        s = s->next;
    return s && s->handed && proxy->state == STATE_UP;
}

const char *packages_proxy_trouble(const struct packages_proxy *proxy)
{
    return proxy->state == STATE_UP ? NULL : proxy->trouble;
}

void packages_proxy_ask(struct packages_proxy *proxy, const struct packages_proxy_ask *ask,
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
    struct packages_proxy_request *q =
        packages_proxy_request_add(proxy, types[ask->what], -1, timeout);

    sup_put_str(&q->w, SUP_TAG_PATH, ask->subject);
    if (ask->keep)
        sup_put_u64(&q->w, PACKAGES_TAG_KEEP, *ask->keep);
    if (ask->unused_for)
        sup_put_u64(&q->w, PACKAGES_TAG_AGE, ask->unused_for);
    q->done = done;
    q->arg = arg;
    if (proxy->state == STATE_DOWN)
        packages_proxy_start(proxy);
    else
        packages_proxy_flush(proxy);
}
