/*
 * The life of an exec: request, start, output, end. Each has one way out, exec_end(): it notifies
 * the watches, emits the event, adds the usage, saves the end and starts retention. The supervisor
 * decides the cause of an end. Only an exec without an end record gets its cause here (exec_fail(),
 * exec_lost(), exec_end_unbegun()).
 */
#include "daemon/core/exec/exec.h"

#include <fcntl.h>
#include <stdlib.h>

#include "daemon/core/events/events.h"
#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/exec/exec-large.h"
#include "daemon/core/exec/exec-save.h"
#include "daemon/core/exec/output-retention.h"
#include "daemon/core/requests/request-key.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum { EXEC_LIVE_MAX = 2048, EXEC_REFUSALS_MAX = 3 };

const char *exec_state_name(enum exec_state s)
{
    static const char *const names[] = {"starting", "running", "ended"};

    return names[s];
}

struct exec *exec_ref(struct exec *x)
{
    x->refs++;
    return x;
}

void exec_unref(struct exec *x)
{
    if (!x || --x->refs)
        return;
    strv_free(x->argv_shown);
    free(x->request_key);
    exec_request_done(&x->req);
    err_done(&x->start_err);
    exec_input_done(x);
    loop_timer_free(x->grace);
    free(x);
}

static struct exec *exec_alloc(struct sandbox *sb)
{
    struct exec *x = xnew0(struct exec);

    x->refs = 1; /* held by the sandbox */
    x->sb = sb;
    x->m = sb->m;
    exec_input_init(&x->input);
    snprintf(x->sandbox_name, sizeof(x->sandbox_name), "%s", sb->name);
    x->next = sb->execs;
    sb->execs = x;
    sb->n_execs++;
    return x;
}

int exec_new(struct sandbox *sb, struct exec_request *req, struct exec **ret, struct err *err)
{
    struct exec *x;
    int r;

    if (sb->n_execs >= EXEC_LIVE_MAX)
        return err_set(err, ERR_LIMIT, "sandbox '%s': too many live execs (limit %d)", sb->name,
                       EXEC_LIVE_MAX);
    r = exec_large_check(sb->m, req, err);
    if (r < 0)
        return r;
    r = *req->id ? 0 : random_hex(req->id, err);
    if (r < 0)
        return r;
    x = exec_alloc(sb);
    memcpy(x->id, req->id, sizeof(x->id));
    x->req = *req;
    *req = (struct exec_request){0};
    exec_large_begin(x);
    x->started_at = time_wall();
    x->detached = !x->req.attach;
    x->attached = x->req.attach;
    *ret = exec_ref(x);
    return 0;
}

/* ---- watches ---- */

void exec_notify(struct exec *x, enum exec_event event)
{
    exec_ref(x);
    for (struct exec_watch *w = x->watches, *next; w; w = next) {
        next = w->next;
        w->fn(w->arg, event);
    }
    exec_unref(x);
}

static void exec_attached(void *arg, const struct err *err, int fd)
{
    struct exec *x = arg;

    if (err)
        log_debug("exec %s: attach: %s", x->id, err->msg);
    exec_input_open(x, fd);
    exec_unref(x);
}

static bool exec_is_reachable(const struct exec *x)
{
    return x->sb && x->sb->conn && exec_is_sent(x);
}

static uint64_t exec_slowest(const struct exec *x, int stream)
{
    uint64_t low = UINT64_MAX;

    for (const struct exec_watch *w = x->watches; w; w = w->next)
        if (w->attached)
            low = MIN(low, w->acked[stream]);
    return low == UINT64_MAX ? x->end_of[stream] : low;
}

void exec_ack(struct exec *x)
{
    if (exec_is_reachable(x) && x->attached)
        supervisor_conn_ack(x->sb->conn, x->id, exec_slowest(x, JOURNAL_STDOUT),
                            exec_slowest(x, JOURNAL_STDERR));
}

void exec_watch_add(struct exec *x, struct exec_watch *w)
{
    struct exec_watch **at = &x->watches;

    while (*at)
        at = &(*at)->next;
    w->next = NULL;
    *at = w;
    if (!w->attached || x->attached || x->state == EXEC_ENDED)
        return;
    x->attached = true;
    /* Before it is sent, the request itself says that it is attached. The answer drops the
     * reference. */
    if (exec_is_reachable(x))
        supervisor_conn_attach(x->sb->conn, x->id, exec_slowest(x, JOURNAL_STDOUT),
                               exec_slowest(x, JOURNAL_STDERR), exec_attached, exec_ref(x));
}

void exec_watch_remove(struct exec *x, struct exec_watch *w)
{
    bool others = false;

    for (struct exec_watch **at = &x->watches; *at;) {
        if (*at == w) {
            *at = w->next;
            continue;
        }
        others |= (*at)->attached;
        at = &(*at)->next;
    }
    if (w->attached && x->read_from && --x->read_from->readers == 0)
        sandbox_expire(x->read_from);
    if (!w->attached || others || !x->attached)
        return;
    x->attached = false;
    if (exec_is_reachable(x))
        supervisor_conn_detach(x->sb->conn, x->id);
}

/* ---- start ---- */

static void exec_store_add(struct exec *x)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *argv = json_from_strv(exec_large_argv(x)), *options = json_object();
    _cleanup_free_ char *argv_text = json_to_text(argv, false), *options_text = NULL;
    struct store_exec row = {
        .id = x->id,
        .sandbox_id = x->sandbox_id,
        .seq = x->seq,
        .argv = argv_text,
        .state = exec_state_name(EXEC_RUNNING),
        .started_at = x->started_at,
    };

    json_object_set_new(options, "tty", json_boolean(x->req.tty));
    json_object_set_new(options, "detached", json_boolean(x->detached));
    if (x->req.session)
        json_object_set_new(options, "session", json_true());
    exec_large_to_options(x, options);
    row.options = options_text = json_to_text(options, true);
    if (store_exec_add(x->m->store, &row, &err) < 0)
        manager_warn(x->m, "exec %s of sandbox %s cannot be saved: %s", x->id, x->sandbox_name,
                     err.msg);
    else
        x->stored = true;
}

static void exec_bind_to_sandbox(struct exec *x)
{
    struct sandbox *sb = x->sb;

    memcpy(x->sandbox_id, sb->id, sizeof(x->sandbox_id));
    x->exec_root = sb->engine->exec_root;
    x->seq = sb->next_seq++;
    exec_store_add(x);
}

/* The exec that an ephemeral sandbox was made for. */
static struct exec *exec_first_of(const struct sandbox *sb)
{
    struct exec *x = sb->ephemeral ? sb->execs : NULL;

    while (x && x->next)
        x = x->next;
    return x;
}

struct exec_request *exec_first_request(struct sandbox *sb)
{
    struct exec *x = exec_first_of(sb);

    if (!x || x->cancelled)
        return NULL;
    x->attached = x->req.attach |= x->attached;
    return &x->req;
}

void exec_first_sent(struct sandbox *sb)
{
    struct exec *x = exec_first_of(sb);

    if (x)
        x->sent = true;
}

static bool exec_is_bound(const struct exec *x)
{
    return x->seq && STREQ(x->sandbox_id, x->sb->id); /* else: the name may have a new sandbox */
}

void exec_launch(struct exec *x)
{
    if (x->req.store_first && !exec_is_bound(x))
        exec_bind_to_sandbox(x);
    /* If the request went ahead with the start, later changes of `attached` are sent now. */
    if (!x->sent) {
        x->attached = x->req.attach |= x->attached;
        supervisor_conn_exec(x->sb->conn, &x->req);
    } else if (x->attached && !x->req.attach) {
        supervisor_conn_attach(x->sb->conn, x->id, exec_slowest(x, JOURNAL_STDOUT),
                               exec_slowest(x, JOURNAL_STDERR), exec_attached, exec_ref(x));
    } else if (x->req.attach && !x->attached) {
        supervisor_conn_detach(x->sb->conn, x->id);
    }
    /* Sent first, stored second: the supervisor works while SQLite writes. If the daemon dies
     * between the two, the journals are on disk and only the row is missing. */
    if (!exec_is_bound(x))
        exec_bind_to_sandbox(x);
    x->waiting = false;
}

/* ---- end ---- */

static void exec_drop_from_sandbox(struct exec *x)
{
    struct sandbox *sb = x->sb;

    for (struct exec **at = &sb->execs; *at; at = &(*at)->next) {
        if (*at != x)
            continue;
        *at = x->next;
        break;
    }
    x->sb = NULL;
    x->next = NULL;
    sb->n_execs--;
    lease_touch(sb);
    exec_unref(x);
}

/* An ephemeral sandbox is removed with its journals, so it waits for their readers. */
static void exec_hold_for_readers(struct exec *x, struct sandbox *sb)
{
    if (!sb->ephemeral)
        return;
    for (const struct exec_watch *w = x->watches; w; w = w->next)
        sb->readers += w->attached;
    x->read_from = sb;
}

static void exec_emit_ended(const struct exec *x, const struct sandbox *sb)
{
    const struct end_record *e = &x->end;
    uint64_t output = e->stdout_bytes + e->stderr_bytes;

    json_t *data =
        json_pack("{s:s, s:i, s:I, s:I, s:I, s:I}", "cause", end_cause_name(e->cause), "status",
                  end_record_status(e), "wall_ms", (json_int_t)(e->wall_usec / USEC_PER_MSEC),
                  "cpu_ms", (json_int_t)(e->cpu_usec / USEC_PER_MSEC), "memory_peak",
                  (json_int_t)e->memory_peak, "output_bytes", (json_int_t)output);

    if (*e->isolation)
        json_object_set_new(data, "isolation", json_string(e->isolation));
    events_emit(x->m->config.events, "exec.ended", sb, x->id, data);
}

/* Records that the daemon makes itself do not have it. */
static void exec_note_isolation(struct exec *x)
{
    enum spec_isolation isolation = x->sb->spec.isolation;

    if (isolation != SPEC_ISOLATION_SHARED && !*x->end.isolation)
        snprintf(x->end.isolation, sizeof(x->end.isolation), "%s", spec_isolation_name(isolation));
}

/* The supervisor knows that the sandbox was stopped, but not why. */
static void exec_explain_stop(struct end_record *end, const struct sandbox *sb)
{
    if (end->cause == END_SANDBOX_STOPPED && !*end->message && sb->state == SANDBOX_STOPPING &&
        sb->reason && !STREQ(sb->reason, STOPPED_ON_REQUEST))
        snprintf(end->message, sizeof(end->message),
                 "the sandbox was stopped while the command ran: %s", sb->reason);
}

static void exec_end(struct exec *x, const struct end_record *rec)
{
    struct sandbox *sb = x->sb;

    exec_ref(x);
    x->end = *rec;
    exec_explain_stop(&x->end, sb);
    exec_note_isolation(x);
    x->state = EXEC_ENDED;
    x->ended_at = rec->ended_wall;
    exec_input_done(x);
    loop_timer_free(TAKE_PTR(x->grace));
    exec_request_wipe(&x->req);
    exec_large_release(x);
    exec_drop_from_sandbox(x);
    exec_hold_for_readers(x, sb);
    exec_notify(x, EXEC_EVENT_ENDED);
    exec_emit_ended(x, sb);
    exec_save_end(x, sb);
    output_retention_ended(sb, x);
    if (sb->ephemeral)
        sandbox_expire(sb);
    exec_unref(x);
}

void exec_fail(struct exec *x, const struct err *err)
{
    struct end_record rec;

    err_copy(&x->start_err, err);
    if (x->request_key)
        request_key_forget(x->m, x->request_key);
    end_record_make(&rec, END_START_FAILED, err->code, err->msg, x->started_at);
    if (!x->seq && x->sb->state != SANDBOX_ABSENT && x->sb->stored)
        exec_bind_to_sandbox(x);
    exec_end(x, &rec);
}

int exec_read_end(const char *exec_root, const char *sandbox_id, const char *exec_id,
                  struct end_record *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s/%s", exec_root, sandbox_id, exec_id);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "no folder '%s'", path);
    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", path);
    return end_record_read(fd, ret, err);
}

/* The journals hold what was really written, also when the supervisor died before it could
 * count. */
static void exec_count_output(const struct exec *x, enum journal_stream which, uint64_t *ret_bytes,
                              uint64_t *ret_dropped)
{
    _cleanup_free_ char *dir = xasprintf("%s/%s/%s", x->exec_root, x->sandbox_id, x->id);
    struct journal_reader reader;
    uint64_t start = 0, end = 0;

    if (journal_reader_open(&reader, AT_FDCWD, dir, which, NULL) < 0)
        return;
    if (journal_reader_extent(&reader, &start, &end, NULL) >= 0) {
        *ret_bytes = end;
        *ret_dropped = start;
    }
    journal_reader_done(&reader);
}

/* The supervisor makes the folder before it starts the command. */
static bool exec_has_folder(const struct exec *x)
{
    _cleanup_free_ char *dir = xasprintf("%s/%s/%s", x->exec_root, x->sandbox_id, x->id);

    return access(dir, F_OK) == 0 || errno != ENOENT;
}

void exec_end_unbegun(struct sandbox *sb)
{
    for (struct exec *x = sb->execs, *next; x; x = next) {
        struct end_record rec;

        next = x->next;
        if (!x->seq || exec_has_folder(x))
            continue;
        end_record_make(&rec, END_ENGINE_LOST, ERR_ENGINE,
                        "the daemon ended before the command started", x->started_at);
        exec_end(x, &rec);
    }
}

bool exec_may_wait(struct exec *x)
{
    return !x->sb->ephemeral && ++x->refusals <= EXEC_REFUSALS_MAX;
}

static void exec_defer(struct exec *x, const char *why)
{
    const struct err err = {.code = ERR_ENGINE, .msg = (char *)why};

    if (exec_may_wait(x))
        x->waiting = true;
    else
        exec_fail(x, &err);
}

static void exec_lost(struct exec *x)
{
    struct end_record rec;

    if (!exec_is_sent(x)) /* the operation of its sandbox decides about it */
        return;
    if (x->state == EXEC_STARTING && !x->sb->ephemeral && !exec_has_folder(x)) {
        exec_defer(x, "the sandbox went down before the command started");
        return;
    }
    if (exec_read_end(x->exec_root, x->sandbox_id, x->id, &rec, NULL) < 0) {
        end_record_make(&rec, END_ENGINE_LOST, ERR_ENGINE,
                        "the sandbox's supervisor ended without an end record", x->started_at);
        exec_count_output(x, JOURNAL_STDOUT, &rec.stdout_bytes, &rec.stdout_dropped);
        exec_count_output(x, JOURNAL_STDERR, &rec.stderr_bytes, &rec.stderr_dropped);
    }
    exec_end(x, &rec);
}

void exec_all_lost(struct sandbox *sb)
{
    for (struct exec *x = sb->execs, *next; x; x = next) {
        next = x->next;
        exec_lost(x);
    }
}

void exec_start_waiting(struct sandbox *sb)
{
    for (struct exec *x = sb->execs; x; x = x->next)
        if (x->waiting)
            manager_start_for(x);
}

/* ---- events of the supervisor's connection ---- */

static struct exec *exec_find_id(struct sandbox *sb, const char *id)
{
    for (struct exec *x = sb->execs; x; x = x->next)
        if (STREQ(x->id, id))
            return x;
    return NULL;
}

struct exec *exec_find_live(struct sandbox *sb, const char *id)
{
    struct exec *newest = NULL;

    if (!STREQ(id, "last"))
        return exec_find_id(sb, id);
    for (struct exec *x = sb->execs; x; x = x->next)
        if (!newest || x->seq > newest->seq)
            newest = x;
    return newest && newest->seq + 1 == sb->next_seq ? newest : NULL;
}

void exec_on_started(struct sandbox *sb, const char *id, int pid, int stdin_fd)
{
    struct exec *x = exec_find_id(sb, id);
    json_t *data;

    if (!x) {
        fd_close(stdin_fd);
        return;
    }
    exec_request_wipe(&x->req);
    exec_large_release(x);
    x->state = EXEC_RUNNING;
    x->pid = pid;
    exec_input_open(x, stdin_fd);
    exec_notify(x, EXEC_EVENT_STARTED);
    data = json_object(); /* enough to recognise the exec; its document has the command line */
    if (x->req.argv && *x->req.argv)
        json_object_set_new(data, "command", json_string(*x->req.argv));
    events_emit(sb->m->config.events, "exec.started", sb, x->id, data);
}

void exec_on_output(struct sandbox *sb, const char *id, uint64_t out, uint64_t err_end)
{
    struct exec *x = exec_find_id(sb, id);

    if (!x)
        return;
    x->end_of[JOURNAL_STDOUT] = MAX(x->end_of[JOURNAL_STDOUT], out);
    x->end_of[JOURNAL_STDERR] = MAX(x->end_of[JOURNAL_STDERR], err_end);
    exec_notify(x, EXEC_EVENT_OUTPUT);
}

void exec_on_refused(struct sandbox *sb, const char *id, const struct err *err)
{
    struct exec *x = exec_find_id(sb, id);

    if (x)
        exec_defer(x, err->msg);
}

void exec_on_ended(struct sandbox *sb, const char *id, const struct end_record *rec)
{
    struct exec *x = exec_find_id(sb, id);

    if (x)
        exec_end(x, rec);
}

void exec_adopt(struct sandbox *sb, const struct store_exec *row)
{
    _cleanup_json_ json_t *argv = NULL, *options = NULL;
    struct exec *x = exec_alloc(sb);

    snprintf(x->id, sizeof(x->id), "%s", row->id);
    memcpy(x->sandbox_id, sb->id, sizeof(x->sandbox_id));
    x->exec_root = sb->engine->exec_root;
    x->seq = row->seq;
    x->state = EXEC_RUNNING;
    x->started_at = row->started_at;
    x->stored = true;
    x->detached = true;
    if (json_parse("stored options", row->options, strlen(row->options), &options, NULL) >= 0) {
        x->req.tty = json_is_true(json_object_get(options, "tty"));
        x->req.session = json_is_true(json_object_get(options, "session"));
        exec_large_from_options(options, &x->argv_words, &x->argv_bytes);
    }
    if (json_parse("stored argv", row->argv, strlen(row->argv), &argv, NULL) >= 0)
        json_read_strv(argv, "argv", &x->req.argv, NULL);
}
