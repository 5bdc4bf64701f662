/*
 * Numbers come from a reserved block whose end is in the store, so a crash can only skip numbers. A
 * write survives the death of the daemon, but not always that of the machine: after a power cut the
 * mark may be an older one. Therefore the first mark of each boot is synced to disk. A start that
 * finds the mark of another boot without a clean end skips more numbers than can have been lost:
 * SQLite syncs its log every few thousand commits at the latest.
 */
#include "daemon/core/events/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/sandbox/sandbox.h"
#include "daemon/engine/exec-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/store/store.h"

#define MARK_KEY "events"
#define FLUSH_AFTER (50 * USEC_PER_MSEC)
#define FLUSH_AGAIN USEC_PER_SEC

enum {
    BLOCK = 1024,
    LEAP = 1 << 24,
    BATCH = 128,        /* in one transaction: about a millisecond */
    PENDING_MAX = 8192, /* when the store cannot be written; the oldest are dropped */
    DATA_MAX = 4096,
};

struct pending_event {
    struct pending_event *next;
    uint64_t seq, at;
    char kind[EVENT_KIND_MAX];
    char sandbox_id[SANDBOX_ID_LEN + 1], sandbox[SANDBOX_NAME_SIZE], exec[EXEC_ID_LEN + 1];
    char *data;
};

struct event_log {
    struct store *store;
    struct loop_timer *flush_timer, *notify_timer;
    char boot[BOOT_ID_MAX];
    uint64_t next, reserved;
    uint64_t saved; /* all up to this number are in the store, or lost */
    uint64_t keep, stored;
    bool counted;   /* `stored` is valid */
    bool skipped;   /* the last event got no number */
    bool notifying; /* notify_timer is set */
    struct pending_event *first, **last;
    size_t n_pending;
    struct events_watch *watches;
};

/* ---- numbers ---- */

static int events_mark(struct event_log *ev, uint64_t number, bool clean, bool sync,
                       struct err *err)
{
    char text[96];

    snprintf(text, sizeof(text), "%llu %c %s", (unsigned long long)number, clean ? 'c' : 'u',
             ev->boot);
    return store_meta_set(ev->store, MARK_KEY, text, sync, err);
}

static int events_reserve(struct event_log *ev, bool sync, struct err *err)
{
    int r = events_mark(ev, ev->next + BLOCK, false, sync, err);

    if (r < 0)
        return r;
    ev->reserved = ev->next + BLOCK;
    return 0;
}

static int events_load_mark(struct event_log *ev, struct err *err)
{
    char text[96], state = 'u', boot[BOOT_ID_MAX] = "";
    unsigned long long number = 1;
    bool same_boot;
    int r;

    r = store_meta_get(ev->store, MARK_KEY, text, sizeof(text), err);
    if (r < 0)
        return r;
    if (r > 0 && sscanf(text, "%llu %c %39s", &number, &state, boot) < 2)
        return err_set(err, ERR_SYSTEM, "the mark of event numbers in the store is damaged: '%s'",
                       text);
    same_boot = r == 0 || (!STREQ(boot, "-") && STREQ(boot, ev->boot));
    ev->next = number + (state == 'c' || same_boot ? 0 : LEAP);
    ev->saved = ev->next - 1;
    return events_reserve(ev, !same_boot, err);
}

/* ---- writing to the store ---- */

static void events_pending_pop(struct event_log *ev)
{
    struct pending_event *p = ev->first;

    ev->first = p->next;
    if (!ev->first)
        ev->last = &ev->first;
    ev->n_pending--;
    ev->saved = p->seq;
    free(p->data);
    free(p);
}

static const char *events_or_null(const char *s)
{
    return *s ? s : NULL;
}

static struct event events_to_event(const struct pending_event *p)
{
    return (struct event){
        .seq = p->seq,
        .at = p->at,
        .kind = p->kind,
        .sandbox_id = events_or_null(p->sandbox_id),
        .sandbox = events_or_null(p->sandbox),
        .exec = events_or_null(p->exec),
        .data = p->data,
    };
}

/* Lets the log grow a little over the limit, so that not every write also deletes. */
static int events_trim(struct event_log *ev, struct err *err)
{
    struct store_span span = {0};
    int r = ev->counted ? 0 : store_event_span(ev->store, &span, err);

    if (r < 0)
        return r;
    ev->stored += span.count;
    ev->counted = true;
    if (ev->stored <= ev->keep + MIN(ev->keep / 8, 2 * BATCH))
        return 0;
    r = store_event_trim(ev->store, ev->stored - ev->keep, err);
    if (r < 0)
        return r;
    ev->stored = ev->keep;
    return 0;
}

static int events_flush_batch(struct event_log *ev, struct err *err)
{
    struct store_event rows[BATCH];
    size_t n = 0;
    int r;

    for (const struct pending_event *p = ev->first; p && n < BATCH; p = p->next) {
        struct event e = events_to_event(p);

        rows[n++] =
            (struct store_event){e.seq, e.at, e.kind, e.sandbox_id, e.sandbox, e.exec, e.data};
    }
    r = store_event_add(ev->store, rows, n, err);
    if (r < 0)
        return r;
    if (ev->counted)
        ev->stored += n;
    while (n--)
        events_pending_pop(ev);
    return events_trim(ev, err);
}

/* Writes one batch per turn of the loop. */
static void events_on_timer(void *arg)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct event_log *ev = arg;
    bool failed;

    if (!ev->first)
        return;
    failed = events_flush_batch(ev, &err) < 0;
    if (failed)
        log_debug("cannot save events, trying again: %s", err.msg);
    if (ev->first)
        loop_timer_set(ev->flush_timer, failed ? FLUSH_AGAIN : 0, false);
}

void events_flush(struct event_log *ev)
{
    while (ev && ev->first)
        if (events_flush_batch(ev, NULL) < 0)
            return;
}

static void events_notify(void *arg)
{
    struct event_log *ev = arg;

    ev->notifying = false;
    for (struct events_watch *w = ev->watches, *next; w; w = next) {
        next = w->next;
        w->fn(w->arg);
    }
}

int events_open(struct loop *loop, struct store *store, uint64_t keep, struct event_log **ret,
                struct err *err)
{
    struct event_log *ev = xnew0(struct event_log);
    int r;

    ev->store = store;
    ev->keep = keep;
    ev->last = &ev->first;
    time_boot_id(ev->boot);
    r = events_load_mark(ev, err);
    if (r < 0) {
        free(ev);
        return err_wrap(err, "events");
    }
    ev->flush_timer = loop_timer_new(loop, events_on_timer, ev);
    ev->notify_timer = loop_timer_new(loop, events_notify, ev);
    *ret = ev;
    return 0;
}

void events_close(struct event_log *ev)
{
    if (!ev)
        return;
    events_flush(ev);
    if (!ev->first)
        events_mark(ev, ev->next, true, false, NULL);
    while (ev->first)
        events_pending_pop(ev);
    loop_timer_free(ev->flush_timer);
    loop_timer_free(ev->notify_timer);
    free(ev);
}

/* ---- emitting ---- */

/* False: no number is available and this event is lost. Its number is skipped, so readers see a
 * gap. */
static bool events_take_number(struct event_log *ev, uint64_t *ret)
{
    if (ev->next + 1 >= ev->reserved && events_reserve(ev, false, NULL) < 0) {
        ev->skipped = true;
        return false;
    }
    ev->next += ev->skipped;
    ev->skipped = false;
    *ret = ev->next++;
    return true;
}

static char *events_data_text(json_t *data)
{
    char *text = data ? json_to_text(data, false) : NULL;

    json_decref(data);
    if (!text || strlen(text) <= DATA_MAX)
        return text;
    free(text);
    return xstrdup("{\"too_long\":true}");
}

static void events_copy(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

void events_emit_of(struct event_log *ev, const char *kind, const char *sandbox_id,
                    const char *sandbox, const char *exec, json_t *data)
{
    struct pending_event *p;
    uint64_t seq;

    if (!ev || !events_take_number(ev, &seq)) {
        json_decref(data);
        return;
    }
    p = xnew0(struct pending_event);
    p->seq = seq;
    p->at = time_wall();
    events_copy(p->kind, sizeof(p->kind), kind);
    events_copy(p->sandbox_id, sizeof(p->sandbox_id), sandbox_id);
    events_copy(p->sandbox, sizeof(p->sandbox), sandbox);
    events_copy(p->exec, sizeof(p->exec), exec);
    p->data = events_data_text(data);
    if (!ev->first)
        loop_timer_set(ev->flush_timer, FLUSH_AFTER, false);
    *ev->last = p;
    ev->last = &p->next;
    if (++ev->n_pending > PENDING_MAX)
        events_pending_pop(ev);
    if (!ev->watches || ev->notifying)
        return;
    ev->notifying = true;
    loop_timer_set(ev->notify_timer, 0, false);
}

void events_emit(struct event_log *ev, const char *kind, const struct sandbox *sb, const char *exec,
                 json_t *data)
{
    events_emit_of(ev, kind, sb ? sb->id : NULL, sb ? sb->name : NULL, exec, data);
}

/* ---- reading ---- */

uint64_t events_newest(const struct event_log *ev)
{
    return ev->next - 1;
}

int events_before_oldest(struct event_log *ev, uint64_t *ret, struct err *err)
{
    struct store_span span;
    int r = store_event_span(ev->store, &span, err);

    if (r < 0)
        return r;
    if (span.first)
        *ret = span.first - 1;
    else
        *ret = ev->first ? ev->first->seq - 1 : ev->next - 1;
    return 0;
}

struct event_reading {
    struct event_reader *r;
    event_fn fn;
    void *arg;
};

static bool events_matches(const struct event_reader *r, const struct event *e)
{
    size_t len = r->kind ? strlen(r->kind) : 0;

    if (r->kind && (strncmp(r->kind, e->kind, len) != 0 || (e->kind[len] && e->kind[len] != '.')))
        return false;
    return !r->sandbox || (e->sandbox && STREQ(r->sandbox, e->sandbox)) ||
           (e->sandbox_id && STREQ(r->sandbox, e->sandbox_id));
}

/* The gap has the number of the last missing event: a reader continues after it. */
static void events_send_gap(const struct event_reading *rd, uint64_t after, uint64_t next,
                            uint64_t at)
{
    char data[80];
    struct event gap = {.seq = next - 1, .at = at, .kind = "gap", .data = data};

    snprintf(data, sizeof(data), "{\"after\":%llu,\"next\":%llu}", (unsigned long long)after,
             (unsigned long long)next);
    rd->fn(rd->arg, &gap);
}

static void events_read_one(const struct event_reading *rd, const struct event *e)
{
    if (e->seq > rd->r->after + 1)
        events_send_gap(rd, rd->r->after, e->seq, e->at);
    rd->r->after = e->seq;
    if (events_matches(rd->r, e))
        rd->fn(rd->arg, e);
}

const char *events_kind_now(const char *kind, char ret[static EVENT_KIND_MAX])
{
    static const char old[] = "registry";
    size_t len = strlen(old);

    if (strncmp(kind, old, len) != 0 || (kind[len] && kind[len] != '.'))
        return kind;
    snprintf(ret, EVENT_KIND_MAX, "packages%s", kind + len);
    return ret;
}

static void events_read_row(void *arg, const struct store_event *row)
{
    char now[EVENT_KIND_MAX];
    const char *kind = events_kind_now(row->kind, now);
    const struct event e = {row->seq,     row->at,   kind,     row->sandbox_id,
                            row->sandbox, row->exec, row->data};

    events_read_one(arg, &e);
}

int events_read(struct event_log *ev, struct event_reader *r, unsigned limit, event_fn fn,
                void *arg, struct err *err)
{
    struct event_reading rd = {r, fn, arg};
    int n = 0;

    if (r->after >= ev->next) { /* a number of another store */
        events_send_gap(&rd, r->after, 1, time_wall());
        r->after = 0;
    }
    if (r->after < ev->saved)
        n = store_event_each(ev->store, r->after, limit, events_read_row, &rd, err);
    if (n < 0)
        return n;
    for (const struct pending_event *p = ev->first; p && (unsigned)n < limit; p = p->next) {
        struct event e = events_to_event(p);

        if (e.seq <= r->after)
            continue;
        events_read_one(&rd, &e);
        n++;
    }
    return n;
}

void events_watch_add(struct event_log *ev, struct events_watch *w)
{
    w->next = ev->watches;
    ev->watches = w;
}

void events_watch_remove(struct event_log *ev, struct events_watch *w)
{
    for (struct events_watch **at = &ev->watches; *at; at = &(*at)->next) {
        if (*at != w)
            continue;
        *at = w->next;
        return;
    }
}

static int events_append_field(struct buf *b, const char *key, const char *value)
{
    if (!value)
        return 0;
    if (buf_appendf(b, ",\"%s\":\"", key) < 0 || text_escape_json(b, value) < 0)
        return -1;
    return buf_append_c(b, '"');
}

int event_to_text(const struct event *e, struct buf *b)
{
    char at[TIME_FORMAT_MAX];

    if (buf_appendf(b, "{\"seq\":%llu,\"time\":\"%s\"", (unsigned long long)e->seq,
                    time_format(e->at, at)) < 0 ||
        events_append_field(b, "kind", e->kind) < 0 ||
        events_append_field(b, "sandbox", e->sandbox) < 0 ||
        events_append_field(b, "sandbox_id", e->sandbox_id) < 0 ||
        events_append_field(b, "exec", e->exec) < 0)
        return -ERR_LIMIT;
    if (e->data && buf_appendf(b, ",\"data\":%s", e->data) < 0)
        return -ERR_LIMIT;
    return buf_append_c(b, '}');
}
