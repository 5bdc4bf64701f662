/*
 * Reads one packet at a time, so that nothing after READY is taken from the socket: later packets
 * are for struct supervisor_conn.
 */
#include "daemon/engine/handshake.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/engine/exec-message.h"
#include "daemon/engine/exec-request.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "proto/supervisor.h"

/* HELLO, READY and FAILED are small; the sender cuts error texts well below this. */
enum { HANDSHAKE_MAX = 16 << 10, SHORT_USEC = 1000 };

static int handshake_wait_for(int fd, short events, const struct deadline *by, struct err *err)
{
    struct pollfd p = {.fd = fd, .events = events};
    int r;

    do
        r = poll(&p, 1, deadline_ms(by));
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return err_sys(err, errno, "wait for the supervisor");
    if (r == 0)
        return err_set(err, ERR_TIMEOUT, "the supervisor does not answer");
    return 0;
}

/* No message of a handshake carries a descriptor: fd_recv() closes any that comes. */
static int handshake_receive(int fd, const struct deadline *by, void *packet, size_t *len,
                             struct err *err)
{
    ssize_t n;

    do {
        int r = handshake_wait_for(fd, POLLIN, by, err);

        if (r < 0)
            return r;
        n = fd_recv(fd, packet, HANDSHAKE_MAX, NULL, NULL, MSG_DONTWAIT);
        if (n ==
            -ECONNRESET) /* an error that is reported once; the last messages can still be read */
            n = fd_recv(fd, packet, HANDSHAKE_MAX, NULL, NULL, MSG_DONTWAIT);
    } while (n == -EAGAIN);
    if (n == 0 || n == -ECONNRESET)
        return err_set(err, ERR_ENGINE, "the supervisor has closed the connection");
    if (n < 0)
        return err_sys(err, (int)-n, "read from the supervisor");
    *len = (size_t)n;
    return 0;
}

/*
 * Releases the writer. pass: a descriptor to send along, or -1. A peer that has hung up is not an
 * error yet: it sent the reason before, and that is read next.
 */
static int handshake_send_message(int fd, struct sup_writer *w, int pass, const struct deadline *by,
                                  struct err *err)
{
    int r;

    r = sup_finish(w, err);
    while (r >= 0) {
        r = fd_send(fd, buf_data(&w->buf), w->buf.len, &pass, pass >= 0, MSG_DONTWAIT);
        if (fd_send_is_short(r)) {
            usleep(SHORT_USEC); /* the socket has room: handshake_wait_for() has waited for it */
            r = -EAGAIN;
        }
        if (r != -EAGAIN) {
            r = r < 0 && r != -EPIPE && r != -ECONNRESET ? err_sys(err, -r, "greet the supervisor")
                                                         : 0;
            break;
        }
        r = handshake_wait_for(fd, POLLOUT, by, err);
    }
    sup_writer_done(w);
    return r;
}

static int handshake_send_hello(int fd, const struct deadline *by, struct err *err)
{
    struct sup_writer w = {0};

    sup_begin(&w, SUP_HELLO, 0);
    sup_put_u64(&w, SUP_TAG_VERSION, (uint64_t)SUP_VERSION_MAJOR << 32 | SUP_VERSION_MINOR);
    return handshake_send_message(fd, &w, -1, by, err);
}

static int handshake_send_first(int fd, const struct exec_request *first, const struct deadline *by)
{
    _cleanup_close_ int handover = -1;
    struct sup_writer w;
    int r = exec_message_make(&w, 0, first, &handover, NULL);

    if (r < 0) {
        sup_writer_done(&w);
        return r;
    }
    return handshake_send_message(fd, &w, handover, by, NULL);
}

static int handshake_check_version(uint64_t version, struct err *err)
{
    if (version >> 32 == SUP_VERSION_MAJOR)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "the supervisor speaks protocol %u.%u, this daemon %d.%d",
            (unsigned)(version >> 32), (unsigned)version, SUP_VERSION_MAJOR, SUP_VERSION_MINOR);
    return err_hint(err, "Stop the sandbox and start it again with the installed version.");
}

static int handshake_read_failed(const void *packet, size_t len, struct err *err)
{
    int r = sup_read_err(packet, len, err);

    return r < 0 ? r : err_set(err, ERR_ENGINE, "the supervisor failed without a reason");
}

static int handshake_read_hello(const void *packet, size_t len, const char *id,
                                struct engine_sandbox *ret, struct err *err)
{
    struct sup_reader rd;
    struct sup_value v;
    uint64_t version = 0;
    int r;

    r = sup_read(&rd, packet, len, err);
    if (r < 0)
        return r;
    if (rd.head.type == SUP_FAILED)
        return handshake_read_failed(packet, len, err);
    if (rd.head.type != SUP_HELLO)
        return err_set(err, ERR_ENGINE, "the supervisor's first message is of type %u, not HELLO",
                       rd.head.type);
    while ((r = sup_next(&rd, &v, err)) > 0) {
        if (v.tag == SUP_TAG_VERSION)
            version = v.u64;
        else if (v.tag == SUP_TAG_PID)
            ret->pid = (int)v.u64;
        else if (v.tag == SUP_TAG_STATE)
            ret->state = v.u64 == SUP_PAUSED ? ENGINE_SANDBOX_PAUSED : ENGINE_SANDBOX_RUNNING;
        else if (v.tag == SUP_TAG_UNENFORCED)
            ret->unenforced |= (uint32_t)v.u64;
        else if (v.tag == SUP_TAG_HASH)
            snprintf(ret->hash, sizeof(ret->hash), "%s", v.data);
        else if (v.tag == SUP_TAG_SANDBOX && !STREQ(v.data, id))
            return err_set(err, ERR_ENGINE,
                           "the supervisor of '%s' serves another sandbox: '%.32s'", id, v.data);
    }
    ret->minor = (uint32_t)version;
    return r < 0 ? r : handshake_check_version(version, err);
}

static int handshake_take_hello(int fd, const char *id, const struct deadline *by,
                                struct engine_sandbox *ret, struct err *err)
{
    _Alignas(8) char packet[HANDSHAKE_MAX];
    size_t len = 0;
    int r;

    r = handshake_receive(fd, by, packet, &len, err);
    return r < 0 ? r : handshake_read_hello(packet, len, id, ret, err);
}

int handshake_hello(int fd, const char *id, const struct deadline *by, struct engine_sandbox *ret,
                    struct err *err)
{
    int r = handshake_send_hello(fd, by, err);

    return r < 0 ? r : handshake_take_hello(fd, id, by, ret, err);
}

static int handshake_read_unenforced(struct sup_reader *rd, struct engine_sandbox *ret,
                                     struct err *err)
{
    struct sup_value v;
    int r;

    while ((r = sup_next(rd, &v, err)) > 0) {
        if (v.tag == SUP_TAG_UNENFORCED)
            ret->unenforced |= (uint32_t)v.u64;
        else if (v.tag == SUP_TAG_PID)
            ret->pid = (int)v.u64;
    }
    return r;
}

static int handshake_take_ready(int fd, const struct deadline *by, struct engine_sandbox *ret,
                                struct err *err)
{
    _Alignas(8) char packet[HANDSHAKE_MAX];
    struct sup_reader rd;
    size_t len = 0;
    int r;

    r = handshake_receive(fd, by, packet, &len, err);
    if (r < 0)
        return r;
    r = sup_read(&rd, packet, len, err);
    if (r < 0)
        return r;
    if (rd.head.type == SUP_READY) {
        ret->state = ENGINE_SANDBOX_RUNNING;
        return handshake_read_unenforced(&rd, ret, err);
    }
    if (rd.head.type != SUP_FAILED)
        return err_set(err, ERR_ENGINE, "the supervisor sent message type %u instead of READY",
                       rd.head.type);
    return handshake_read_failed(packet, len, err);
}

int handshake_start(int fd, const struct sandbox_request *req, const struct deadline *by,
                    struct engine_sandbox *ret, struct err *err)
{
    int r = handshake_send_hello(fd, by, err);

    if (r < 0)
        return r;
    /* A failure here does not fail the start: the first exec is sent again later. */
    ret->first_sent = req->first && handshake_send_first(fd, req->first, by) >= 0;
    r = handshake_take_hello(fd, req->id, by, ret, err);
    return r < 0 ? r : handshake_take_ready(fd, by, ret, err);
}
