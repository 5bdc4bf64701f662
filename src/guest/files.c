/*
 * `guest files`: one operation of files/files.h, its bytes in frames, with blocking I/O.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "guest/guest-conn.h"
#include "guest/modes.h"
#include "lib/base/cleanup.h"
#include "lib/os/confine.h"

struct guest_files {
    struct guest_conn conn;
    struct guest_frame frame; /* in: the frame that is being read */
    uint32_t at;
    struct buf gathered; /* out: small messages are gathered into large frames */
};

static ssize_t guest_files_read(void *arg, void *data, size_t len)
{
    struct guest_files *f = arg;
    size_t n;

    while (f->at == f->frame.length) {
        if (guest_conn_wait(&f->conn, &f->frame, NULL) <= 0)
            return 0;
        if (f->frame.type != GUEST_STDIN)
            return f->frame.type == GUEST_STDIN_EOF ? 0 : -EPROTO;
        f->at = 0;
    }
    n = MIN(len, (size_t)(f->frame.length - f->at));
    memcpy(data, f->frame.data + f->at, n);
    f->at += (uint32_t)n;
    return (ssize_t)n;
}

static int guest_files_flush(void *arg)
{
    struct guest_files *f = arg;

    if (f->gathered.len)
        guest_conn_queued(&f->conn, guest_put(&f->conn.out, GUEST_STDOUT, buf_data(&f->gathered),
                                              f->gathered.len));
    buf_clear(&f->gathered);
    guest_conn_flush(&f->conn);
    return f->conn.gone ? -EPIPE : 0;
}

static int guest_files_write(void *arg, const void *data, size_t len)
{
    struct guest_files *f = arg;
    int r = 0;

    while (len && r == 0) {
        size_t n = MIN(len, f->gathered.max - f->gathered.len);

        if (buf_append(&f->gathered, data, n) < 0)
            return -ENOBUFS;
        data = (const char *)data + n;
        len -= n;
        if (f->gathered.len == f->gathered.max)
            r = guest_files_flush(f);
    }
    return r;
}

/* The daemon sends nothing while it waits for an answer, so readable means that it has closed. */
static int guest_files_wait(void *arg _unused_, int fd, int timeout_ms)
{
    struct pollfd p[] = {{.fd = GUEST_CONN_IN, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int n;

    do
        n = poll(p, 2, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n < 0 || p[0].revents)
        return -EPIPE;
    return n > 0;
}

static int guest_files_prepare(struct err *err)
{
    int r = guest_check_user(err);

    if (r < 0)
        return r;
    r = files_limit(err);
    return r < 0 ? r : confine_files_helper(err);
}

int guest_files(char **argv _unused_, struct err *err _unused_)
{
    struct guest_files f = {.conn = GUEST_CONN_INIT, .gathered = BUF_INIT(GUEST_PAYLOAD_MAX)};
    const struct files_io io = {guest_files_read, guest_files_write, guest_files_flush,
                                guest_files_wait, &f};
    const struct guest_done done = {0};
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    guest_conn_queued(&f.conn, guest_put_hello(&f.conn.out, (uint32_t)getpid()));
    guest_conn_flush(&f.conn);
    r = guest_files_prepare(&why);
    if (r >= 0)
        r = files_serve(&io, &why);
    if (r < 0)
        buf_clear(&f.gathered);
    guest_conn_queued(&f.conn, r < 0 ? guest_put_failed(&f.conn.out, &why)
                                     : guest_put_done(&f.conn.out, &done));
    guest_conn_flush(&f.conn);
    buf_done(&f.gathered);
    guest_conn_done(&f.conn);
    return 0;
}
