/*
 * One function per message: the fields that are sent, and the callback for the answer.
 */
#include "daemon/engine/exec-message.h"
#include "daemon/engine/supervisor-conn-internal.h"
#include "lib/base/fd.h"

#include <string.h>

/* A working supervisor answers in milliseconds. A copy takes as long as its data and has no
 * timeout. */
#define SUPERVISOR_CONN_ANSWER_TIMEOUT (30 * USEC_PER_SEC)

static void supervisor_calls_request(struct supervisor_conn *l, struct sup_writer *w, int fd,
                                     uint64_t timeout, supervisor_result_fn done, void *arg)
{
    struct supervisor_request *q = supervisor_conn_request(l, w, fd, timeout);

    q->done = done;
    q->arg = arg;
}

void supervisor_conn_exec(struct supervisor_conn *l, const struct exec_request *req)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct supervisor_request *q;
    _cleanup_close_ int fd = -1;
    struct sup_writer w;
    int r = exec_message_make(&w, supervisor_conn_next_seq(l), req, &fd, &err);

    if (r >= 0 && req->merged)
        r = sup_check_merged(supervisor_conn_minor(l), &err);
    /* No deadline: a start must not be reported as failed and then happen later. */
    if (r >= 0)
        q = supervisor_conn_request(l, &w, TAKE_FD(fd), 0);
    else
        q = supervisor_conn_unmade(l, &w, &err);
    snprintf(q->exec, sizeof(q->exec), "%s", req->id);
}

int supervisor_conn_check_exec(const struct supervisor_conn *l, const struct exec_request *req,
                               struct err *err)
{
    uint32_t minor = supervisor_conn_minor(l);
    int r = req->merged ? sup_check_merged(minor, err) : 0;

    if (r < 0 || sup_check_known(SUP_EXEC_LARGE, minor, NULL) >= 0 || !exec_message_is_large(req))
        return r;
    return sup_check_known(SUP_EXEC_LARGE, minor, err);
}

static void supervisor_calls_put_offsets(struct sup_writer *w, uint64_t stdout_ack,
                                         uint64_t stderr_ack)
{
    sup_put_u64(w, SUP_TAG_STDOUT, stdout_ack);
    sup_put_u64(w, SUP_TAG_STDERR, stderr_ack);
}

void supervisor_conn_attach(struct supervisor_conn *l, const char *exec, uint64_t stdout_ack,
                            uint64_t stderr_ack, supervisor_result_fn done, void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_ATTACH, exec);
    supervisor_calls_put_offsets(&w, stdout_ack, stderr_ack);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

void supervisor_conn_detach(struct supervisor_conn *l, const char *exec)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_DETACH, exec);
    supervisor_conn_notify(l, &w);
}

void supervisor_conn_settled(struct supervisor_conn *l)
{
    struct sup_writer w;

    if (sup_check_known(SUP_SETTLED, supervisor_conn_minor(l), NULL) < 0)
        return; /* it has forgotten the earlier spec at its start */
    supervisor_conn_begin(l, &w, SUP_SETTLED, NULL);
    supervisor_conn_notify(l, &w);
}

void supervisor_conn_ack(struct supervisor_conn *l, const char *exec, uint64_t stdout_ack,
                         uint64_t stderr_ack)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_ACK, exec);
    supervisor_calls_put_offsets(&w, stdout_ack, stderr_ack);
    supervisor_conn_notify(l, &w);
}

void supervisor_conn_signal(struct supervisor_conn *l, const char *exec, int sig,
                            supervisor_result_fn done, void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_SIGNAL, exec);
    sup_put_u64(&w, SUP_TAG_SIGNAL, (uint64_t)sig);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

void supervisor_conn_kill(struct supervisor_conn *l, const char *exec, enum end_cause cause,
                          supervisor_result_fn done, void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_KILL, exec);
    sup_put_u64(&w, SUP_TAG_CAUSE, cause);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

void supervisor_conn_resize(struct supervisor_conn *l, const char *exec, uint16_t rows,
                            uint16_t cols)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_RESIZE, exec);
    sup_put_u64(&w, SUP_TAG_ROWS, rows);
    sup_put_u64(&w, SUP_TAG_COLS, cols);
    supervisor_conn_notify(l, &w);
}

void supervisor_conn_stdin_close(struct supervisor_conn *l, const char *exec)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_STDIN_CLOSE, exec);
    supervisor_conn_notify(l, &w);
}

void supervisor_conn_stop(struct supervisor_conn *l, uint64_t grace_usec, bool for_good,
                          supervisor_result_fn done, void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_STOP, NULL);
    sup_put_u64(&w, SUP_TAG_GRACE, grace_usec);
    sup_put_u64(&w, SUP_TAG_FLAGS, for_good ? SUP_STOP_FOR_GOOD : 0);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

void supervisor_conn_pause(struct supervisor_conn *l, bool on, supervisor_result_fn done, void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, on ? SUP_PAUSE : SUP_RESUME, NULL);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

void supervisor_conn_stats(struct supervisor_conn *l, supervisor_stats_fn done, void *arg)
{
    struct sup_writer w;
    struct supervisor_request *q;

    supervisor_conn_begin(l, &w, SUP_STATS, NULL);
    q = supervisor_conn_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT);
    q->stats_done = done;
    q->arg = arg;
}

void supervisor_conn_dial(struct supervisor_conn *l, uint16_t port, supervisor_result_fn done,
                          void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_DIAL, NULL);
    sup_put_u64(&w, SUP_TAG_PORT, port);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

void supervisor_conn_listener(struct supervisor_conn *l, supervisor_result_fn done, void *arg)
{
    struct sup_writer w;

    supervisor_conn_begin(l, &w, SUP_LISTENER, NULL);
    supervisor_calls_request(l, &w, -1, SUPERVISOR_CONN_ANSWER_TIMEOUT, done, arg);
}

/* Whether COPY says the same, or nearly the same to a supervisor that knows nothing else. */
static bool supervisor_calls_plain_copy(const struct supervisor_conn *l, const struct sup_copy *c)
{
    if (c->user || c->owner || c->flags & (SUP_COPY_PARENTS | SUP_COPY_MODE))
        return false;
    return !c->into || c->flags & SUP_COPY_ATOMIC ||
           sup_check_known(SUP_COPY_AS, supervisor_conn_minor(l), NULL) < 0;
}

void supervisor_conn_copy(struct supervisor_conn *l, const struct sup_copy *copy, int tar_fd,
                          supervisor_stats_fn done, void *arg)
{
    enum sup_msg_type type = supervisor_calls_plain_copy(l, copy) ? SUP_COPY : SUP_COPY_AS;
    struct sup_writer w;
    struct supervisor_request *q;

    supervisor_conn_begin(l, &w, type, NULL);
    sup_put_copy(&w, copy);
    q = supervisor_conn_request(l, &w, tar_fd, 0);
    q->stats_done = done;
    q->arg = arg;
}

void supervisor_conn_files(struct supervisor_conn *l, const char *user, int fd,
                           supervisor_stats_fn done, void *arg)
{
    struct sup_writer w;
    struct supervisor_request *q;

    supervisor_conn_begin(l, &w, SUP_FILES, NULL);
    sup_put_str(&w, SUP_TAG_USER, user);
    q = supervisor_conn_request(l, &w, fd, 0);
    q->stats_done = done;
    q->arg = arg;
}
