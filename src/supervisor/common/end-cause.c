/*
 * The end of an exec: its wait status, the rest of its output, then the end record. An exit status
 * becomes a cause in supervisor_end_decide(). No cause is guessed from an exit code: `oom` needs a
 * rise of the kernel's counter of OOM kills or a signal that we sent, `timeout` and `killed` need
 * a signal that we sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "supervisor/common/supervisor.h"

enum {
    DRAIN_GRACE_USEC = 2000000, /* a daemonised child holds a pipe and may still write */
    DRAIN_STRAY_USEC = 100000,  /* no process of the exec is left, but another one has its pipe */
};

static bool supervisor_end_was_killed_hard(const struct supervised_exec *x)
{
    return WIFSIGNALED(x->wait_status) && WTERMSIG(x->wait_status) == SIGKILL;
}

static bool supervisor_end_has_failed(const struct supervised_exec *x)
{
    return !WIFEXITED(x->wait_status) || WEXITSTATUS(x->wait_status) != 0;
}

static enum end_cause supervisor_end_decide(const struct supervised_exec *x,
                                            const struct end_record *rec)
{
    if (x->killed && supervisor_end_was_killed_hard(x))
        return x->kill_cause;
    if (rec->oom_kills && supervisor_end_was_killed_hard(x))
        return END_OOM;
    if (x->stopped)
        return END_SANDBOX_STOPPED;
    if (rec->pids_denied && supervisor_end_has_failed(x))
        return END_PIDS_LIMIT;
    return WIFSIGNALED(x->wait_status) ? END_SIGNALED : END_EXITED;
}

static void supervisor_end_fill_streams(struct supervised_exec *x, struct end_record *rec)
{
    const struct exec_stream *out = &x->streams[JOURNAL_STDOUT], *err = &x->streams[JOURNAL_STDERR];
    uint64_t lost = out->dropped + err->dropped;

    rec->stdout_bytes = out->journal.end;
    rec->stderr_bytes = err->journal.end;
    rec->stdout_dropped = out->journal.start + out->dropped;
    rec->stderr_dropped = err->journal.start + err->dropped;
    rec->drained = streams_drained(x);
    if (lost && !*rec->message)
        snprintf(rec->message, sizeof(rec->message),
                 "%llu bytes of output were lost (cannot store them: %s)", (unsigned long long)lost,
                 strerror(out->lost_errno ? out->lost_errno : err->lost_errno));
    peers_note_input(x); /* the kernel may close a dead daemon's pipe before its socket to us */
    if (x->input_lost && !*rec->message)
        snprintf(rec->message, sizeof(rec->message),
                 "the input was truncated (the daemon ended before it had sent everything)");
}

static void supervisor_end_send_ended(struct supervised_exec *x, const struct end_record *rec)
{
    _cleanup_buf_ struct buf text = BUF_INIT(16 << 10);
    struct sup_writer w;

    sup_begin(&w, SUP_ENDED, 0);
    sup_put_str(&w, SUP_TAG_EXEC, x->id);
    if (end_record_format(rec, &text) >= 0)
        sup_put_bytes(&w, SUP_TAG_RECORD, buf_data(&text), text.len);
    peers_broadcast(x->sup, &w);
}

static void supervisor_end_release(struct supervised_exec *x)
{
    attachments_remove(x, NULL);
    x->state = EXEC_OVER;
    input_close(x);
    x->sup->ops->over(x);
    x->dirfd = fd_close(x->dirfd);
    stream_discard(x);
    x->freed = streams_drained(x);
}

static void supervisor_end_conclude(struct supervised_exec *x, struct end_record *rec)
{
    _cleanup_err_ struct err err = ERR_INIT;

    rec->started_wall = x->started_wall;
    rec->ended_wall = time_wall();
    rec->wall_usec = time_mono() - x->started_mono;
    if (x->sup->isolation)
        snprintf(rec->isolation, sizeof(rec->isolation), "%s", x->sup->isolation);
    if (x->dirfd >= 0 && end_record_write(x->dirfd, rec, &err) < 0)
        log_warn("exec %s: cannot save the end record: %s", x->id, err.msg);
    supervisor_end_send_ended(x, rec);
    supervisor_end_release(x);
    if (x->sup->ephemeral)
        stop_begin(x->sup, 0);
}

void exec_try_finish(struct supervised_exec *x)
{
    struct end_record rec = {.exit_code = -1};

    if (x->state != EXEC_DRAINING)
        return;
    if (!streams_drained(x) && !deadline_passed(&x->drain_by))
        return;
    streams_read_rest(x);
    if (WIFEXITED(x->wait_status))
        rec.exit_code = WEXITSTATUS(x->wait_status);
    else
        rec.signal = WTERMSIG(x->wait_status);
    supervisor_end_fill_streams(x, &rec);
    x->sup->ops->fill(x, &rec);
    rec.cause = supervisor_end_decide(x, &rec);
    supervisor_end_conclude(x, &rec);
}

void exec_main_ended(struct supervised_exec *x)
{
    struct supervisor *s = x->sup;

    x->state = EXEC_DRAINING;
    /* An ephemeral sandbox ends with its command; that also ends every other holder of the
     * pipes. */
    if (s->ephemeral)
        stop_begin(s, 0);
    x->drain_by = deadline_in(s->ops->has_survivors(x) ? DRAIN_GRACE_USEC : DRAIN_STRAY_USEC);
    exec_try_finish(x);
}

void exec_lose(struct supervised_exec *x, const struct err *why)
{
    struct end_record rec = {.cause = END_ENGINE_LOST, .exit_code = -1, .error = why->code};

    snprintf(rec.message, sizeof(rec.message), "%s", why->msg ? why->msg : "");
    x->fed = false;
    streams_close(x);
    supervisor_end_fill_streams(x, &rec);
    rec.drained = false;
    supervisor_end_conclude(x, &rec);
}

bool exec_is_late(const struct supervised_exec *x)
{
    const struct supervisor *s = x->sup;

    if (s->ephemeral) /* there is no next start */
        return false;
    return s->state == SUP_STOPPING || s->gone || (s->ops->has_died && s->ops->has_died(s));
}

static void supervisor_end_send_failed(struct supervised_exec *x, const struct err *why, bool late)
{
    struct sup_writer w;

    if (!x->starter)
        return;
    sup_begin(&w, SUP_EXEC_FAILED, x->seq);
    sup_put_str(&w, SUP_TAG_EXEC, x->id);
    if (late)
        sup_put_u64(&w, SUP_TAG_STATE, SUP_STOPPING);
    sup_put_err(&w, why);
    peer_send(x->starter, &w, -1);
}

void exec_send_refused(struct supervised_exec *x, const struct err *why)
{
    supervisor_end_send_failed(x, why, exec_is_late(x));
}

/* The sandbox died before the command began: we forget the exec, so that the daemon can send it
 * again. True if that worked; a folder that is not empty shows that the command had begun. */
static bool supervisor_end_give_back(struct supervised_exec *x, const struct err *why)
{
    /* ESRCH: pid 1 is dying; its pidfd becomes readable a moment later. */
    bool late = exec_is_late(x) || (!x->sup->ephemeral && why->errnum == ESRCH);

    if (!x->starter || !late || x->entrusted ||
        (unlinkat(x->sup->exec_dirfd, x->id, AT_REMOVEDIR) < 0 && errno != ENOENT))
        return false;
    x->fed = false;
    streams_close(x);
    supervisor_end_send_failed(x, why, true);
    supervisor_end_release(x);
    return true;
}

void exec_fail_start(struct supervised_exec *x, const struct err *why)
{
    struct end_record rec = {
        .cause = END_START_FAILED, .exit_code = -1, .drained = true, .error = why->code};

    if (supervisor_end_give_back(x, why))
        return;
    snprintf(rec.message, sizeof(rec.message), "%s", why->msg ? why->msg : "");
    snprintf(rec.hint, sizeof(rec.hint), "%s", why->hint ? why->hint : "");
    x->fed = false;
    streams_close(x);
    supervisor_end_send_failed(x, why, false);
    supervisor_end_conclude(x, &rec);
}

void exec_killed_in_start(struct supervised_exec *x)
{
    struct end_record rec = {
        .cause = x->kill_cause, .exit_code = -1, .signal = SIGKILL, .drained = true};

    snprintf(rec.message, sizeof(rec.message), "the command was killed before it ran");
    x->fed = false;
    x->starter = NULL;
    streams_close(x);
    supervisor_end_conclude(x, &rec);
}
