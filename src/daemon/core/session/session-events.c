/*
 * A reader reads each journal through its own stream into a buffer, cuts lines from it and delivers
 * them in the order of the index. At the end of the index it decides the order: it takes the
 * available lines of one stream, stores them as a run, and only then delivers them. There is one
 * thread, so two readers of a session never decide at once; the second follows the first.
 *
 * Bytes can be lost in two ways. Bytes without a number become a gap event with its own number. If
 * they were events already, the reader gets the number of events that it missed.
 */
#include <stdlib.h>

#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/output-stream.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/session/session-index.h"
#include "daemon/core/session/session-line.h"
#include "daemon/core/session/session.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum {
    READ_PIECE = 64 << 10,
    SIDE_MAX = SESSION_LINE_MAX + 4 * READ_PIECE, /* a whole line and what is needed to cut it */
    RUN_EVENTS_MAX = 256, /* a reader that resumes inside a run reads the run from its start */
    RUN_BYTES_MAX = 256 << 10,
    TAKE_WAIT = 2,
};

static const char *const stream_names[] = {"stdout", "stderr"};

struct session_side {
    struct output_stream *stream;
    struct buf buf; /* bytes from `at` on */
    uint64_t at;
    uint32_t part;
    uint64_t gap_to; /* the bytes after the buffer are lost up to here; 0: no gap */
    bool over;       /* the buffer holds the last bytes */
};

struct session_reader {
    struct session_reader_config config;
    const char *exec_root; /* of its engine */
    char sandbox_id[SANDBOX_ID_LEN + 1], id[EXEC_ID_LEN + 1];
    struct session_index index; /* opened when there are events to order */
    struct session_side sides[JOURNAL_STREAMS];
    uint64_t seq; /* of the next event */
    uint64_t i;   /* index of its run */
    struct session_run run;
    uint32_t taken;  /* delivered events of the run */
    uint64_t missed; /* events that were skipped since the last delivered one */
    bool finished;
};

DEFINE_CLEANUP(struct session_reader *, session_reader_free);

/* ---- sides ---- */

/* Drops bytes that were skipped in the meantime. */
static void session_events_side_drop(struct session_side *s, uint64_t upto)
{
    uint64_t n = upto > s->at ? upto - s->at : 0;

    buf_consume(&s->buf, (size_t)MIN(n, (uint64_t)s->buf.len));
    s->at += n;
    if (s->gap_to && s->gap_to <= s->at)
        s->gap_to = 0;
}

static void session_events_side_take(struct session_side *s, const struct output_chunk *c,
                                     const char *data)
{
    uint64_t end = s->at + s->buf.len, skip = end > c->offset ? end - c->offset : 0;

    if (c->kind == OUTPUT_GAP && c->to > end)
        s->gap_to = c->to;
    else if (c->kind == OUTPUT_DATA && skip < c->len)
        (void)!buf_append(&s->buf, data + skip,
                          c->len - skip); /* fits: session_events_side_fill() left room */
}

static int session_events_side_fill(struct session_side *s, struct err *err)
{
    static char piece[READ_PIECE]; /* one loop, one thread */
    struct output_chunk c = {0};

    while (!s->over && !s->gap_to && s->buf.len + READ_PIECE <= SIDE_MAX) {
        int r = output_stream_read(s->stream, piece, sizeof(piece), &c, err);

        if (r < 0)
            return r;
        if (c.kind == OUTPUT_NOTHING)
            return 0;
        s->over = c.kind == OUTPUT_END;
        session_events_side_take(s, &c, piece);
    }
    return 0;
}

static bool session_events_side_next(const struct session_reader *r, const struct session_side *s,
                                     size_t from, uint32_t part, struct session_line *ret)
{
    return session_line_next(buf_data(&s->buf) + from, s->buf.len - from, s->over || s->gap_to,
                             part, r->index.line_max, ret);
}

static void session_events_side_consume(struct session_side *s, const struct session_line *l)
{
    buf_consume(&s->buf, l->used);
    s->at += l->used;
    s->part = l->last ? 0 : l->part;
}

/* ---- runs ---- */

/* Plans a run with the available lines of one stream. Returns 1 when there are any. */
static int session_events_plan_run(struct session_reader *r, enum journal_stream which,
                                   struct session_run *run, struct err *err)
{
    struct session_side *s = &r->sides[which];
    struct session_line line;
    uint32_t part = s->part;
    size_t used = 0;
    int n = session_events_side_fill(s, err);

    if (n < 0)
        return n;
    *run = (struct session_run){.seq = r->seq, .stream = which};
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        run->at[i] = r->sides[i].at;
        run->part[i] = r->sides[i].part;
    }
    while (run->count < RUN_EVENTS_MAX && used < RUN_BYTES_MAX &&
           session_events_side_next(r, s, used, part, &line)) {
        used += line.used;
        part = line.last ? 0 : line.part;
        run->count++;
    }
    run->to = s->at + used;
    if (!run->count && s->gap_to) {
        run->gap = true;
        run->count = 1;
        run->to = s->gap_to;
    }
    return run->count > 0;
}

static bool session_events_may_extend(const struct session_run *old, const struct session_run *more)
{
    return old->count && !old->gap && !more->gap && old->stream == more->stream &&
           old->count + more->count <= RUN_EVENTS_MAX &&
           more->to - old->at[old->stream] <= RUN_BYTES_MAX;
}

static int session_events_put_run(struct session_reader *r, const struct session_run *more,
                                  struct err *err)
{
    struct session_run run = *more;
    bool extend = session_events_may_extend(&r->run, more);
    uint64_t i = r->i + (r->run.count && !extend);
    int n;

    if (extend) {
        run = r->run;
        run.count += more->count;
        run.to = more->to;
    }
    n = session_index_put(&r->index, i, &run, err);
    if (n < 0)
        return n;
    r->i = i;
    r->run = run;
    r->taken = extend ? run.count - more->count : 0;
    return 1;
}

/* The streams take turns: none waits for the end of the other. */
static int session_events_decide(struct session_reader *r, struct err *err)
{
    unsigned first = r->run.count ? 1U - r->run.stream : JOURNAL_STDOUT;

    for (unsigned k = 0; k < JOURNAL_STREAMS; k++) {
        struct session_run run = {0};
        int n = session_events_plan_run(r, (enum journal_stream)(first ^ k), &run, err);

        if (n < 0)
            return n;
        if (n > 0)
            return session_events_put_run(r, &run, err);
    }
    return 0;
}

static void session_events_enter_run(struct session_reader *r, const struct session_run *run)
{
    uint64_t wanted = MAX(r->seq, r->config.since + 1);

    if (run->seq > wanted) /* the index has forgotten those between */
        r->missed += run->seq - wanted;
    r->seq = run->seq;
    r->run = *run;
    r->taken = 0;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        session_events_side_drop(&r->sides[i], run->at[i]);
        r->sides[i].part = run->part[i];
    }
}

/* Goes to the next undelivered event. Returns 1, or 0 when there is none now. Another reader may
 * have extended the run or added runs. */
static int session_events_advance(struct session_reader *r, struct err *err)
{
    bool begun = r->run.count > 0;
    struct session_run run = {0};
    uint64_t count;
    int n;

    if (r->taken < r->run.count)
        return 1;
    n = session_index_count(&r->index, &count, err);
    if (n < 0)
        return n;
    if (begun && r->i < count && session_index_get(&r->index, r->i, &run, NULL) >= 0 &&
        run.count > r->taken) {
        r->run = run;
        return 1;
    }
    if (r->i + begun >= count)
        return session_events_decide(r, err);
    r->i = session_index_first(&r->index, r->i + begun, count);
    n = session_index_get(&r->index, r->i, &run, err);
    if (n < 0)
        return n;
    session_events_enter_run(r, &run);
    return 1;
}

/* ---- events ---- */

static int session_events_put_head(uint64_t seq, const char *stream, struct buf *b)
{
    return buf_appendf(b, "{\"seq\":%llu,\"stream\":\"%s\",\"event\":", (unsigned long long)seq,
                       stream);
}

static int session_events_too_large(struct err *err)
{
    return err_set(err, ERR_LIMIT, "a session event is larger than %d bytes", SESSION_TEXT_MAX);
}

/* Returns 1 when the event was wanted and is in the buffer. */
static int session_events_give_line(struct session_reader *r, const struct session_line *l,
                                    struct buf *b, struct err *err)
{
    enum journal_stream which = (enum journal_stream)r->run.stream;

    if (r->seq <= r->config.since)
        return 0;
    if (session_events_put_head(r->seq, stream_names[which], b) < 0 ||
        session_line_event(l, which, b) < 0 || buf_append_c(b, '}') < 0)
        return session_events_too_large(err);
    return 1;
}

static int session_events_give_gap(struct session_reader *r, struct buf *b, struct err *err)
{
    const struct session_run *run = &r->run;

    if (r->seq <= r->config.since)
        return 0;
    if (session_events_put_head(r->seq, "session", b) < 0 ||
        buf_appendf(b, "{\"type\":\"gap\",\"stream\":\"%s\",\"from\":%llu,\"to\":%llu}}",
                    stream_names[run->stream], (unsigned long long)run->at[run->stream],
                    (unsigned long long)run->to) < 0)
        return session_events_too_large(err);
    return 1;
}

/* Has the number of the last missing event: a reader that resumes there misses no more. */
static int session_events_give_missed(struct session_reader *r, struct buf *b, struct err *err)
{
    if (session_events_put_head(r->seq - 1, "session", b) < 0 ||
        buf_appendf(b, "{\"type\":\"gap\",\"missed\":%llu}}", (unsigned long long)r->missed) < 0)
        return session_events_too_large(err);
    r->missed = 0;
    return 1;
}

static int session_events_give_exit(struct session_reader *r, struct buf *b, struct err *err)
{
    const char *end = output_stream_end_text(r->sides[0].stream);

    if (r->config.since > r->seq)
        return err_set(err, ERR_INVALID, "event %llu does not exist: the last one is %llu",
                       (unsigned long long)r->config.since, (unsigned long long)r->seq);
    r->finished = true;
    if (r->seq == r->config.since)
        return 0;
    /* The record is an object: its fields follow the type. */
    if (session_events_put_head(r->seq, "session", b) < 0 ||
        buf_appendf(b, "{\"type\":\"exit\",%s}", end && *end == '{' ? end + 1 : "}") < 0)
        return session_events_too_large(err);
    return 1;
}

/* Skips the rest of a run whose bytes are no longer kept. */
static void session_events_pass_over(struct session_reader *r)
{
    uint64_t next = r->run.seq + r->run.count;

    if (next > r->config.since + 1)
        r->missed += next - MAX(r->seq, r->config.since + 1);
    r->seq = next;
    r->taken = r->run.count;
    session_events_side_drop(&r->sides[r->run.stream], r->run.to);
    r->sides[r->run.stream].part = 0;
}

enum session_events_found { FOUND, FOUND_LATER, FOUND_LOST };

/*
 * Finds the next line of a stored run. LOST: its bytes were dropped, which shows when the line made
 * from the remaining bytes ends before or after the run. LATER: another reader saw the bytes before
 * we got their event.
 */
static enum session_events_found session_events_line_of_run(const struct session_reader *r,
                                                            struct session_line *ret)
{
    const struct session_side *s = &r->sides[r->run.stream];
    bool all = s->over || s->gap_to;

    if (!session_events_side_next(r, s, 0, s->part, ret))
        return all ? FOUND_LOST : FOUND_LATER;
    if (s->at + ret->used > r->run.to)
        return FOUND_LOST;
    if (all && ret->used == s->buf.len && s->at + ret->used < r->run.to)
        return FOUND_LOST;
    return FOUND;
}

/* Takes the next event of the run. Returns 1 when it is in the buffer, 0 when it was skipped, or
 * TAKE_WAIT. */
static int session_events_take_one(struct session_reader *r, struct buf *b, struct err *err)
{
    struct session_side *s = &r->sides[r->run.stream];
    struct session_line line;
    enum session_events_found found;
    int n;

    if (r->run.gap && r->missed)
        return session_events_give_missed(r, b, err);
    if (r->run.gap) {
        n = session_events_give_gap(r, b, err);
        session_events_side_drop(s, r->run.to);
        s->part = 0;
    } else {
        n = session_events_side_fill(s, err);
        if (n < 0)
            return n;
        found = session_events_line_of_run(r, &line);
        if (found == FOUND_LATER)
            return TAKE_WAIT;
        if (found == FOUND_LOST) {
            session_events_pass_over(r);
            return 0;
        }
        if (r->missed)
            return session_events_give_missed(r, b, err);
        n = session_events_give_line(r, &line, b, err);
        session_events_side_consume(s, &line);
    }
    r->seq++;
    r->taken++;
    return n;
}

static bool session_events_all_read(const struct session_reader *r)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        if (!r->sides[i].over || r->sides[i].buf.len || r->sides[i].gap_to)
            return false;
    return true;
}

/* Returns 1 when the index is open. The exec's folder exists only after its start. */
static int session_events_open_index(struct session_reader *r, struct err *err)
{
    _cleanup_free_ char *dir = xasprintf("%s/%s/%s", r->exec_root, r->sandbox_id, r->id);
    _cleanup_err_ struct err why = ERR_INIT;
    uint64_t count = 0;
    struct session_run run;
    int n;

    if (r->index.fd >= 0)
        return 1;
    n = session_index_open(&r->index, dir, &why);
    if (n == -ERR_NOT_FOUND)
        return 0;
    if (n < 0)
        return err_move(err, &why);
    n = session_index_count(&r->index, &count, err);
    if (n < 0 || !count)
        return n < 0 ? n : 1;
    n = session_index_find(&r->index, r->config.since + 1, &r->i, err);
    if (n < 0)
        return n;
    n = session_index_get(&r->index, r->i, &run, err);
    if (n < 0)
        return n;
    session_events_enter_run(r, &run);
    return 1;
}

int session_read(struct session_reader *r, struct buf *b, uint64_t *ret_seq,
                 enum session_result *ret, struct err *err)
{
    int n = session_events_open_index(r, err), gave = 0;

    while (n > 0 && !gave && (n = session_events_advance(r, err)) > 0) {
        gave = session_events_take_one(r, b, err);
        if (gave < 0)
            return gave;
    }
    if (gave == TAKE_WAIT)
        gave = 0;
    if (n < 0)
        return n;
    if (!gave && r->missed)
        gave = session_events_give_missed(r, b, err);
    if (!gave && !r->finished && n == 0 && output_stream_end_text(r->sides[0].stream) &&
        (r->index.fd < 0 || session_events_all_read(r))) {
        gave = session_events_give_exit(r, b, err);
        *ret_seq = r->seq;
    } else {
        *ret_seq = r->seq - 1;
    }
    if (gave < 0)
        return gave;
    *ret = gave ? SESSION_EVENT : r->finished ? SESSION_OVER : SESSION_NOTHING;
    return 0;
}

/* ---- opening and closing ---- */

/* Both streams get every event, this one first. The notification of the other one is enough. */
static void session_events_ignore(void *arg)
{
    (void)arg;
}

static int session_events_open_streams(struct session_reader *r, struct manager *m,
                                       struct sandbox *sb, struct err *err)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        bool second = i == JOURNAL_STREAMS - 1;
        struct output_stream_config c = {.follow = r->config.follow,
                                         .notify =
                                             second ? r->config.notify : session_events_ignore,
                                         .arg = r->config.arg};
        int n;

        c.want[i] = true;
        c.offsets[i] = r->sides[i].at;
        n = output_stream_new(m, sb, r->id, &c, &r->sides[i].stream, err);
        if (n < 0)
            return n;
    }
    return 0;
}

/* Fails when the session has ended with output and its folder is gone. */
static int session_events_check_kept(struct session_reader *r, struct err *err)
{
    uint64_t bytes = 0;

    if (r->index.fd >= 0 || !output_stream_end_text(r->sides[0].stream))
        return 0;
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        bytes += output_stream_first(r->sides[i].stream, (enum journal_stream)i, NULL);
    if (!bytes)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "the events of session '%s' are no longer kept", r->id);
}

static int session_events_find_session(struct manager *m, struct sandbox *sb,
                                       struct session_reader *r, const char *id, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int n = session_get_json(m, sb, id, &doc, err);

    if (n < 0)
        return n;
    snprintf(r->id, sizeof(r->id), "%s", json_string_value(json_object_get(doc, "id")));
    return 0;
}

int session_reader_new(struct manager *m, struct sandbox *sb, const char *id,
                       const struct session_reader_config *c, struct session_reader **ret,
                       struct err *err)
{
    _cleanup_(session_reader_freep) struct session_reader *r = xnew0(struct session_reader);
    int n;

    r->config = *c;
    r->index.fd = -1;
    r->seq = 1;
    r->exec_root = sb->engine->exec_root;
    memcpy(r->sandbox_id, sb->id, sizeof(r->sandbox_id));
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        r->sides[i].buf.max = SIDE_MAX;
    n = session_events_find_session(m, sb, r, id, err);
    if (n < 0)
        return n;
    n = session_events_open_index(r, err); /* first: it has the offsets of the streams */
    if (n < 0)
        return n;
    n = session_events_open_streams(r, m, sb, err);
    if (n < 0)
        return n;
    n = session_events_check_kept(r, err);
    if (n < 0)
        return n;
    *ret = TAKE_PTR(r);
    return 0;
}

void session_reader_free(struct session_reader *r)
{
    if (!r)
        return;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        output_stream_free(r->sides[i].stream);
        buf_done(&r->sides[i].buf);
    }
    session_index_done(&r->index);
    free(r);
}
