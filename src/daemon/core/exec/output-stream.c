/*
 * Each stream of an exec is a side with its own journal reader and offset. The sides take turns. An
 * OUTPUT event or the end of the exec marks a side as fresh; it is read until it has no more bytes.
 */
#include "daemon/core/exec/output-stream.h"

#include <fcntl.h>
#include <stdlib.h>

#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* Acknowledges in steps, so that a slow reader lets the writer continue in time. */
enum { ACK_STEP = 8 << 20, AVAILABLE_UNKNOWN = 64 << 10 };

struct output_side {
    struct journal_reader reader;
    bool open, want;
    bool fresh; /* there may be unread bytes */
    uint64_t offset, total;
};

struct output_stream {
    struct output_stream_config config;
    struct exec *exec; /* or NULL */
    struct exec_watch watch;
    bool watching;
    char *dir;    /* the exec's folder; NULL until its sandbox has an id */
    char *end;    /* END document, or NULL */
    bool ack_due; /* an OUTPUT event is not acknowledged yet */
    uint64_t unacked;
    struct output_side sides[JOURNAL_STREAMS];
    int turn; /* the side to ask first: no side starves */
};

static void output_stream_ended(struct output_stream *s, const struct end_record *rec)
{
    _cleanup_json_ json_t *o = end_record_to_json(rec);

    s->end = json_to_text(o, false);
    s->sides[JOURNAL_STDOUT].total = rec->stdout_bytes;
    s->sides[JOURNAL_STDERR].total = rec->stderr_bytes;
}

static void output_stream_on_event(void *arg, enum exec_event event)
{
    struct output_stream *s = arg;

    for (int i = 0; i < JOURNAL_STREAMS; i++)
        s->sides[i].fresh |= event == EXEC_EVENT_ENDED || s->exec->end_of[i] > s->sides[i].offset;
    s->ack_due |= event == EXEC_EVENT_OUTPUT;
    if (event == EXEC_EVENT_ENDED && !s->end)
        output_stream_ended(s, &s->exec->end);
    s->config.notify(s->config.arg);
}

static struct output_stream *output_stream_alloc(const struct output_stream_config *c)
{
    struct output_stream *s = xnew0(struct output_stream);

    s->config = *c;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        s->sides[i].want = c->want[i];
        s->sides[i].offset = c->offsets[i];
        s->sides[i].fresh = c->want[i];
        s->watch.acked[i] = c->want[i] ? c->offsets[i] : UINT64_MAX;
    }
    return s;
}

struct output_stream *output_stream_new_live(struct exec *x, const struct output_stream_config *c)
{
    struct output_stream *s = output_stream_alloc(c);

    s->exec = exec_ref(x);
    s->watch.fn = output_stream_on_event;
    s->watch.arg = s;
    s->watch.attached = c->follow;
    s->watching = c->follow;
    if (x->state == EXEC_ENDED)
        output_stream_ended(s, &x->end);
    if (s->watching)
        exec_watch_add(x, &s->watch);
    if (!x->seq) /* new: there is no output yet */
        s->sides[JOURNAL_STDOUT].fresh = s->sides[JOURNAL_STDERR].fresh = false;
    return s;
}

struct output_found {
    struct output_stream *s;
    const struct sandbox *sb;
};

static void output_stream_on_row(void *arg, const struct store_exec *row)
{
    struct output_found *f = arg;
    _cleanup_json_ json_t *end = NULL;
    const struct exec *unsaved;

    f->s->dir = xasprintf("%s/%s/%s", f->sb->engine->exec_root, row->sandbox_id, row->id);
    unsaved = row->end ? NULL : exec_save_find(f->sb->m, row->id);
    if (unsaved)
        output_stream_ended(f->s, &unsaved->end);
    if (!row->end || json_parse("stored end", row->end, strlen(row->end), &end, NULL) < 0)
        return;
    f->s->end = xstrdup(row->end);
    f->s->sides[JOURNAL_STDOUT].total =
        (uint64_t)json_integer_value(json_object_get(end, "stdout_bytes"));
    f->s->sides[JOURNAL_STDERR].total =
        (uint64_t)json_integer_value(json_object_get(end, "stderr_bytes"));
}

int output_stream_new(struct manager *m, struct sandbox *sb, const char *id,
                      const struct output_stream_config *c, struct output_stream **ret,
                      struct err *err)
{
    struct exec *live = exec_find_live(sb, id);
    struct output_found f = {.sb = sb};
    int r;

    if (live) {
        *ret = output_stream_new_live(live, c);
        return 0;
    }
    f.s = output_stream_alloc(c);
    r = store_exec_get(m->store, sb->id, id, output_stream_on_row, &f, err);
    if (r < 0) {
        output_stream_free(f.s);
        return err_wrap(err, "sandbox '%s'", sb->name);
    }
    if (!f.s->end) { /* neither live nor ended: nothing would ever wake the reader */
        output_stream_free(f.s);
        return err_set(err, ERR_CONFLICT, "the end of exec '%s' is not known yet", id);
    }
    *ret = f.s;
    return 0;
}

void output_stream_free(struct output_stream *s)
{
    if (!s)
        return;
    if (s->watching)
        exec_watch_remove(s->exec, &s->watch);
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        if (s->sides[i].open)
            journal_reader_done(&s->sides[i].reader);
    exec_unref(s->exec);
    free(s->dir);
    free(s->end);
    free(s);
}

const char *output_stream_end_text(const struct output_stream *s)
{
    return s->end;
}

struct exec *output_stream_exec(const struct output_stream *s)
{
    return s->exec;
}

/* 1 when the journal is open; 0 when the exec has no folder (yet, or never had one). */
static int output_stream_side_open(struct output_stream *s, struct output_side *side,
                                   enum journal_stream which, struct err *err)
{
    if (side->open)
        return 1;
    if (!s->dir && (!s->exec || !s->exec->seq))
        return 0;
    if (!s->dir)
        s->dir = xasprintf("%s/%s/%s", s->exec->exec_root, s->exec->sandbox_id, s->exec->id);
    if (access(s->dir, F_OK) < 0 && errno == ENOENT) {
        if (s->exec) { /* not started: it may still start in a new sandbox of that name */
            free(s->dir);
            s->dir = NULL;
        }
        return 0;
    }
    if (journal_reader_open(&side->reader, AT_FDCWD, s->dir, which, err) < 0)
        return err_wrap(err, "read output of exec");
    side->open = true;
    return 1;
}

static void output_stream_side_gap(struct output_side *side, enum journal_stream which, uint64_t to,
                                   struct output_chunk *ret)
{
    *ret = (struct output_chunk){OUTPUT_GAP, which, side->offset, to, 0};
    side->offset = to;
}

/* Bytes at the offset were dropped: reports a gap up to the first byte that is kept. */
static int output_stream_side_dropped(struct output_side *side, enum journal_stream which,
                                      struct output_chunk *ret, struct err *err)
{
    uint64_t start, end;
    int r = journal_reader_extent(&side->reader, &start, &end, err);

    if (r < 0)
        return r;
    if (start <= side->offset)
        return err_set(err, ERR_SYSTEM, "journal: offset %llu is neither kept nor dropped",
                       (unsigned long long)side->offset);
    output_stream_side_gap(side, which, start, ret);
    return 1;
}

static int output_stream_side_read(struct output_stream *s, enum journal_stream which, void *data,
                                   size_t max, struct output_chunk *ret, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    struct output_side *side = &s->sides[which];
    ssize_t n = 0;
    int r;

    if (!side->want || !side->fresh || (s->end && side->offset >= side->total))
        return 0;
    r = output_stream_side_open(s, side, which, err);
    if (r < 0)
        return r;
    if (r > 0)
        n = journal_reader_read(&side->reader, side->offset, data, max, &why);
    if (n == -ERR_NOT_FOUND)
        return output_stream_side_dropped(side, which, ret, err);
    if (n < 0)
        return err_move(err, &why);
    if (n > 0) {
        *ret = (struct output_chunk){OUTPUT_DATA, which, side->offset, 0, (size_t)n};
        side->offset += (uint64_t)n;
        return 1;
    }
    side->fresh = false;
    if (!s->end)
        return 0;
    /* The record counts more bytes than the files hold: report them as a gap. */
    output_stream_side_gap(side, which, side->total, ret);
    return 1;
}

static void output_stream_acknowledge(struct output_stream *s, size_t read)
{
    s->unacked += read;
    if (!s->watching || s->end || (!s->ack_due && s->unacked < ACK_STEP))
        return;
    if (read && s->unacked < ACK_STEP)
        return; /* acknowledge at the end of the data or after a step, not for each piece */
    for (int i = 0; i < JOURNAL_STREAMS; i++)
        if (s->sides[i].want)
            s->watch.acked[i] = s->sides[i].offset;
    s->unacked = 0;
    s->ack_due = false;
    exec_ack(s->exec);
}

int output_stream_read(struct output_stream *s, void *data, size_t max, struct output_chunk *ret,
                       struct err *err)
{
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        enum journal_stream which = (enum journal_stream)((s->turn + i) % JOURNAL_STREAMS);
        int r = output_stream_side_read(s, which, data, max, ret, err);

        if (r < 0)
            return r;
        if (r == 0)
            continue;
        s->turn = (int)(which + 1) % JOURNAL_STREAMS;
        output_stream_acknowledge(s, ret->len);
        return 0;
    }
    output_stream_acknowledge(s, 0);
    *ret = (struct output_chunk){.kind = s->end ? OUTPUT_END : OUTPUT_NOTHING};
    return 0;
}

/* The length of a side is known after the end and after an OUTPUT event; else an estimate. */
size_t output_stream_available(const struct output_stream *s)
{
    size_t most = 0;

    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        const struct output_side *side = &s->sides[i];
        uint64_t end = s->end ? side->total : s->exec ? s->exec->end_of[i] : 0;

        if (!side->want || !side->fresh || (s->end && side->offset >= side->total))
            continue;
        most = MAX(most, end > side->offset ? (size_t)(end - side->offset) : AVAILABLE_UNKNOWN);
    }
    return most;
}

uint64_t output_stream_first(struct output_stream *s, enum journal_stream which, uint64_t *ret_end)
{
    struct output_side *side = &s->sides[which];
    uint64_t start = 0, end = 0;
    int r = output_stream_side_open(s, side, which, NULL);

    if (r == 0 && s->end) /* ended without a folder: nothing is kept */
        start = end = side->total;
    else if (r > 0)
        journal_reader_extent(&side->reader, &start, &end, NULL);
    if (ret_end)
        *ret_end = end;
    return start;
}

int output_stream_times(struct output_stream *s, enum journal_stream which, struct times_mark **ret,
                        size_t *ret_n, struct err *err)
{
    int r = output_stream_side_open(s, &s->sides[which], which, err);

    *ret_n = 0;
    return r > 0 ? journal_reader_times(&s->sides[which].reader, ret, ret_n, err) : r;
}

bool output_stream_skip(struct output_stream *s, enum journal_stream which, uint64_t offset)
{
    struct output_side *side = &s->sides[which];

    side->offset = offset;
    s->watch.acked[which] = offset;
    return !s->end || offset < side->total;
}
