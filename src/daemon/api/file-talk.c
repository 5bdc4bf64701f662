#include "daemon/api/file-talk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/core/sandbox/copy-dial.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum {
    TALK_PIECE = 128 << 10,
    TALK_PIECES_PER_TURN = 8,
    TALK_SOCKET = 1 << 20,
    TALK_OUT_MAX = 2 * FILES_REQUEST_MAX,
};

/* Lives until the supervisor's result has arrived, also after file_talk_drop(). */
struct file_talk {
    struct file_talk_config config;
    char *name; /* owned */
    struct loop_watch *watch;
    int fd; /* -1: closed */
    struct buf in, out;
    uint64_t raw;  /* bytes behind HEAD that are still to come */
    uint64_t read; /* bytes of all items */
    bool paused, dropped, done;
    bool busy;     /* in a callback of the owner, which may drop it */
    bool resulted; /* the supervisor's result has arrived */
    struct err err;
};

/* Shared by all: they run on the loop's thread, and its content is used at once. */
static char scratch[TALK_PIECE];

static void file_talk_close(struct file_talk *t)
{
    loop_watch_free(TAKE_PTR(t->watch));
    t->fd = fd_close(t->fd);
}

static void file_talk_free(struct file_talk *t)
{
    file_talk_close(t);
    buf_done(&t->in);
    buf_done(&t->out);
    err_done(&t->err);
    free(t->name);
    free(t);
}

/* The end, once nothing more can come. */
static void file_talk_settle(struct file_talk *t)
{
    if (!t->resulted)
        return;
    if (t->dropped) {
        file_talk_free(t);
        return;
    }
    if (t->fd >= 0 && !t->err.code)
        return; /* the last bytes are still in the socket */
    if (t->done)
        return;
    t->done = true;
    t->config.events->ended(t->config.arg, t->err.code ? &t->err : NULL);
    file_talk_free(t);
}

/* What the helper sent is wrong: its end of the socket closes, and the result follows. */
static void file_talk_fail(struct file_talk *t, struct err *err)
{
    if (!t->err.code) {
        err_move(&t->err, err);
        t->err.code = ERR_ENGINE; /* not the client's mistake */
        err_wrap(&t->err, "sandbox '%s'", t->name);
    }
    file_talk_close(t);
}

static void file_talk_watch(struct file_talk *t)
{
    int events = t->paused ? 0 : LOOP_READ;

    if (t->watch)
        loop_watch_set(t->watch, events | (t->out.len ? LOOP_WRITE : 0));
}

/* ---- what the helper says ---- */

/* HEAD says how many raw bytes follow it. */
static int file_talk_take_head(struct file_talk *t, const struct files_message *m, struct err *err)
{
    struct files_reader r = files_fields(m);
    struct files_field f;
    int n;

    while ((n = files_next(&r, &f, err)) > 0)
        if (f.tag == FILES_TAG_LENGTH)
            t->raw = f.u64;
    return n;
}

static bool file_talk_take_message(struct file_talk *t, const struct files_message *m,
                                   struct err *err)
{
    t->read += m->length;
    if (m->type == FILES_HEAD && file_talk_take_head(t, m, err) < 0)
        return false;
    return t->config.events->message(t->config.arg, m, err);
}

/* Uses up t->in. False: it ends with t->err. The callee may drop the talk. */
static bool file_talk_parse(struct file_talk *t)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct files_message m;

    while (!t->dropped) {
        size_t raw = MIN(t->raw, t->in.len);
        int r;

        if (raw) {
            t->raw -= raw;
            t->config.events->bytes(t->config.arg, buf_data(&t->in), raw);
            buf_consume(&t->in, raw);
            continue;
        }
        r = files_parse(buf_data(&t->in), t->in.len, true, &m, &err);
        if (r == 0)
            return true;
        if (r < 0 || !file_talk_take_message(t, &m, &err)) {
            file_talk_fail(t, &err);
            return false;
        }
        buf_consume(&t->in, FILES_HEAD_SIZE + m.length);
    }
    return false;
}

/* 1: more may come; 0: the end, or nothing for now. */
static int file_talk_read_once(struct file_talk *t)
{
    ssize_t n = read(t->fd, scratch, sizeof(scratch));
    size_t raw;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        file_talk_close(t);
        return 0;
    }
    raw = t->in.len ? 0 : MIN(t->raw, (uint64_t)n); /* the usual case: nothing is copied */
    t->raw -= raw;
    if (raw)
        t->config.events->bytes(t->config.arg, scratch, raw);
    if (t->dropped || (size_t)n == raw)
        return !t->dropped;
    if (buf_append(&t->in, scratch + raw, (size_t)n - raw) < 0) {
        file_talk_close(t);
        return 0;
    }
    return file_talk_parse(t);
}

static void file_talk_flush(struct file_talk *t)
{
    ssize_t n = 1;

    while (t->out.len && n > 0) {
        n = send(t->fd, buf_data(&t->out), t->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            buf_consume(&t->out, (size_t)n);
        else if (errno != EAGAIN && errno != EINTR)
            buf_clear(&t->out); /* the helper has ended: its result says why */
    }
}

static void file_talk_on_ready(void *arg, int events)
{
    struct file_talk *t = arg;
    bool waited = t->out.len;

    t->busy = true;
    if (events & LOOP_WRITE)
        file_talk_flush(t);
    if (waited && !t->out.len && t->config.events->sent)
        t->config.events->sent(t->config.arg);
    for (int i = 0; i < TALK_PIECES_PER_TURN && t->fd >= 0 && !t->paused && !t->dropped; i++)
        if (!file_talk_read_once(t))
            break;
    t->busy = false;
    file_talk_watch(t);
    file_talk_settle(t);
}

static void file_talk_resulted(void *arg, const struct err *err,
                               const struct copy_result *result _unused_)
{
    struct file_talk *t = arg;

    t->resulted = true;
    if (err && !t->err.code) {
        err_copy(&t->err, err);
        err_wrap(&t->err, "sandbox '%s'", t->name);
    }
    file_talk_settle(t);
}

/* ---- for the owner ---- */

static void file_talk_queue(struct file_talk *t, const void *data, size_t len)
{
    if (t->fd < 0)
        return;
    if (buf_append(&t->out, data, len) < 0)
        file_talk_close(t); /* the owner sends without waiting: a mistake of ours */
}

struct file_talk *file_talk_start(struct api *a, const struct file_talk_config *config,
                                  struct err *err)
{
    struct file_talk *t;
    int pair[2], size = TALK_SOCKET;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        err_sys(err, errno, "make a socket pair");
        return NULL;
    }
    /* Smaller buffers only cost speed. */
    for (int i = 0; i < 2; i++)
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    t = xnew0(struct file_talk);
    t->config = *config;
    t->name = xstrdup(config->sandbox);
    t->fd = pair[0];
    t->in = (struct buf)BUF_INIT(FILES_HEAD_SIZE + FILES_MESSAGE_MAX + TALK_PIECE);
    t->out = (struct buf)BUF_INIT(TALK_OUT_MAX);
    t->watch = loop_watch_new(api_settings(a)->loop, t->fd, file_talk_on_ready, t);
    if (!t->watch) {
        fd_close(pair[1]);
        err_set(err, ERR_LIMIT, "cannot watch a socket");
    } else if (manager_files(api_settings(a)->manager, config->sandbox, config->user,
                             config->writes, pair[1], file_talk_resulted, t, err) >= 0) {
        file_talk_queue(t, buf_data(config->request), config->request->len);
        file_talk_watch(t);
        return t;
    }
    file_talk_free(t);
    return NULL;
}

/* One message. What the socket takes at once, which is usually all, is not copied before. */
static void file_talk_send_data(struct file_talk *t, const char *data, size_t len)
{
    char head[FILES_HEAD_SIZE];
    struct iovec parts[] = {{head, sizeof(head)}, {(char *)data, len}};
    const struct msghdr msg = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
    ssize_t n = -1;
    size_t sent;

    files_put_head(head, FILES_DATA, (uint32_t)len);
    if (t->fd >= 0 && !t->out.len)
        n = sendmsg(t->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    sent = n > 0 ? (size_t)n : 0;
    if (sent < sizeof(head))
        file_talk_queue(t, head + sent, sizeof(head) - sent);
    sent -= MIN(sent, sizeof(head));
    file_talk_queue(t, data + sent, len - sent);
}

void file_talk_send(struct file_talk *t, const char *data, size_t len, bool end)
{
    char head[FILES_HEAD_SIZE];

    while (len) {
        size_t n = MIN(len, (size_t)FILES_MESSAGE_MAX);

        file_talk_send_data(t, data, n);
        data += n;
        len -= n;
    }
    if (end) {
        files_put_head(head, FILES_END, 0);
        file_talk_queue(t, head, sizeof(head));
    }
    if (t->fd >= 0)
        file_talk_flush(t);
    file_talk_watch(t);
}

size_t file_talk_pending(const struct file_talk *t)
{
    return t->out.len;
}

void file_talk_read(struct file_talk *t, bool on)
{
    t->paused = !on;
    file_talk_watch(t);
}

void file_talk_drop(struct file_talk *t)
{
    if (!t || t->done)
        return;
    t->dropped = true;
    file_talk_close(t);
    if (!t->busy)
        file_talk_settle(t);
}
