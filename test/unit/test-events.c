/* Events: numbers are never reused, gaps are reported, the history stays within its limit. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/core/events/events.h"
#include "daemon/core/sandbox/lease-clock.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/loop/loop.h"
#include "lib/os/rmtree.h"
#include "lib/store/store.h"
#include "tap.h"

enum { KEEP = 100 };

struct bed {
    char dir[32], path[64];
    struct loop *loop;
    struct store *store;
    struct event_log *ev;
};

struct seen {
    unsigned n, gaps;
    uint64_t first, last;
    char kind[EVENT_KIND_MAX], gap[80];
    bool disorder;
};

static void bed_open(struct bed *b)
{
    if (loop_new(&b->loop, NULL) < 0 || store_open(b->path, &b->store, NULL) < 0 ||
        events_open(b->loop, b->store, KEEP, &b->ev, NULL) < 0)
        abort();
}

static void bed_init(struct bed *b)
{
    *b = (struct bed){.dir = "/tmp/test-events-XXXXXX"};
    if (!mkdtemp(b->dir))
        abort();
    snprintf(b->path, sizeof(b->path), "%s/db", b->dir);
    bed_open(b);
}

static void bed_close(struct bed *b)
{
    events_close(b->ev);
    loop_free(b->loop);
    store_close(b->store);
}

static void bed_done(struct bed *b)
{
    bed_close(b);
    rmtree(AT_FDCWD, b->dir, NULL);
}

static void emit(struct bed *b, unsigned n, const char *kind)
{
    while (n--)
        events_emit_of(b->ev, kind, "0123456789abcdef", "a", NULL, NULL);
}

static void on_event(void *arg, const struct event *e)
{
    struct seen *s = arg;

    if (STREQ(e->kind, "gap")) {
        s->gaps++;
        snprintf(s->gap, sizeof(s->gap), "%s", e->data);
        return;
    }
    s->disorder |= s->n && e->seq <= s->last;
    if (!s->n++)
        s->first = e->seq;
    s->last = e->seq;
    snprintf(s->kind, sizeof(s->kind), "%s", e->kind);
}

static struct seen read_all(struct bed *b, struct event_reader *r)
{
    struct seen s = {0};

    while (events_read(b->ev, r, 7, on_event, &s, NULL) > 0)
        ;
    return s;
}

static struct seen read_after(struct bed *b, uint64_t after)
{
    return read_all(b, &(struct event_reader){.after = after});
}

TEST(numbers_go_up_by_one_from_memory_and_from_disk)
{
    struct bed b;
    struct seen s;

    bed_init(&b);
    emit(&b, 20, "x.y");
    events_flush(b.ev);
    emit(&b, 10, "x.y"); /* not written yet */
    s = read_after(&b, 0);
    CHECK(s.n == 30 && s.first == 1 && s.last == 30 && !s.gaps && !s.disorder);
    s = read_after(&b, 25);
    CHECK(s.n == 5 && s.first == 26 && !s.gaps);
    CHECK(events_newest(b.ev) == 30);
    bed_done(&b);
}

TEST(clean_end_skips_nothing)
{
    struct bed b;
    struct seen s;

    bed_init(&b);
    emit(&b, 3, "x.y");
    bed_close(&b);
    bed_open(&b);
    emit(&b, 1, "x.z");
    s = read_after(&b, 0);
    CHECK(s.n == 4 && s.last == 4 && !s.gaps);
    bed_done(&b);
}

/* After a crash, unwritten events are lost, their numbers are not reused, and the gap is
 * reported. */
TEST(crash_never_repeats_a_number)
{
    struct bed b, crashed;
    struct seen s;
    uint64_t last;

    bed_init(&b);
    emit(&b, 2, "x.y");
    events_flush(b.ev);
    emit(&b, 3, "x.lost");
    last = events_newest(b.ev);
    crashed = b; /* as if it had been killed: it writes nothing more */
    bed_open(&b);
    emit(&b, 1, "x.z");
    CHECK(events_newest(b.ev) > last);
    s = read_after(&b, 0);
    CHECK(s.n == 3 && s.gaps == 1 && STREQ(s.kind, "x.z"));
    CHECK(strncmp(s.gap, "{\"after\":2,\"next\":", 18) == 0);
    bed_close(&b);
    bed_close(&crashed);
    rmtree(AT_FDCWD, b.dir, NULL);
}

/* After a power cut the mark may be old: after a reboot many numbers are skipped. */
TEST(a_new_boot_without_a_clean_end_skips_numbers)
{
    struct bed b;

    bed_init(&b);
    bed_close(&b);
    if (store_open(b.path, &b.store, NULL) < 0 ||
        store_meta_set(b.store, "events", "500 u another-boot", false, NULL) < 0)
        abort();
    store_close(b.store);
    bed_open(&b);
    CHECK(events_newest(b.ev) >= (1 << 24));
    bed_close(&b);
    if (store_open(b.path, &b.store, NULL) < 0 ||
        store_meta_set(b.store, "events", "500 c another-boot", false, NULL) < 0)
        abort();
    store_close(b.store);
    bed_open(&b);
    CHECK(events_newest(b.ev) == 499);
    bed_done(&b);
}

TEST(history_is_bounded_and_missing_events_are_reported)
{
    struct bed b;
    struct seen s;
    uint64_t before = 0;

    bed_init(&b);
    emit(&b, 1500, "x.y");
    events_flush(b.ev);
    s = read_after(&b, 10);
    CHECK(s.n >= KEEP && s.n <= KEEP + KEEP / 8);
    CHECK(s.last == 1500 && s.gaps == 1);
    CHECK(events_before_oldest(b.ev, &before, NULL) >= 0 && before == s.first - 1);
    s = read_after(&b, before);
    CHECK(!s.gaps);
    bed_done(&b);
}

TEST(a_number_of_another_store_is_a_gap)
{
    struct bed b;
    struct seen s;

    bed_init(&b);
    emit(&b, 5, "x.y");
    s = read_after(&b, 4000);
    CHECK(s.gaps == 1 && s.n == 5 && STREQ(s.gap, "{\"after\":4000,\"next\":1}"));
    bed_done(&b);
}

TEST(filters_by_sandbox_and_kind)
{
    struct bed b;

    bed_init(&b);
    emit(&b, 3, "exec.ended");
    emit(&b, 2, "executive");
    events_emit_of(b.ev, "exec.ended", "fedcba9876543210", "b", NULL, NULL);
    CHECK(read_all(&b, &(struct event_reader){.kind = "exec"}).n == 4);
    CHECK(read_all(&b, &(struct event_reader){.kind = "exec.ended"}).n == 4);
    CHECK(read_all(&b, &(struct event_reader){.kind = "exec.end"}).n == 0);
    CHECK(read_all(&b, &(struct event_reader){.sandbox = "b"}).n == 1);
    CHECK(read_all(&b, &(struct event_reader){.sandbox = "fedcba9876543210"}).n == 1);
    CHECK(read_all(&b, &(struct event_reader){.sandbox = "b", .kind = "executive"}).n == 0);
    bed_done(&b);
}

TEST(old_kinds_of_the_package_cache_have_their_new_names)
{
    char ret[EVENT_KIND_MAX];
    struct bed b;
    struct seen s;

    CHECK_STR(events_kind_now("registry", ret), "packages");
    CHECK_STR(events_kind_now("registry.mismatch", ret), "packages.mismatch");
    CHECK_STR(events_kind_now("registryx", ret), "registryx");
    CHECK_STR(events_kind_now("exec.ended", ret), "exec.ended");
    bed_init(&b);
    emit(&b, 1, "registry.denied"); /* as an older daemon did */
    events_flush(b.ev);
    emit(&b, 1, "registryx.denied");
    s = read_all(&b, &(struct event_reader){.kind = "packages"});
    CHECK(s.n == 1 && STREQ(s.kind, "packages.denied"));
    bed_done(&b);
}

static void stop_loop(void *arg)
{
    loop_stop(arg);
}

TEST(followers_are_notified_on_a_later_turn_and_events_are_written)
{
    struct bed b;
    struct events_watch w = {0};
    struct store_span span;

    bed_init(&b);
    w.fn = stop_loop;
    w.arg = b.loop;
    events_watch_add(b.ev, &w);
    emit(&b, 300, "x.y");
    loop_run(b.loop); /* ends only if the watch is called */
    events_watch_remove(b.ev, &w);
    bed_close(&b);
    if (store_open(b.path, &b.store, NULL) < 0)
        abort();
    CHECK(store_event_span(b.store, &span, NULL) >= 0 && span.last == 300);
    store_close(b.store);
    rmtree(AT_FDCWD, b.dir, NULL);
}

/* A restart of the daemon does not change the lease clock; after a reboot it continues. */
TEST(the_lease_clock_continues_across_daemons_and_boots)
{
    struct bed b;
    struct lease_clock u, next;

    bed_init(&b);
    CHECK(lease_clock_open(b.store, &u, NULL) >= 0 && lease_clock_now(&u) > 0);
    CHECK(lease_clock_open(b.store, &next, NULL) >= 0 && next.base == u.base);
    CHECK(store_meta_set(b.store, "uptime", "another-boot 5 1000000000000000", false, NULL) >= 0);
    CHECK(lease_clock_open(b.store, &next, NULL) >= 0);
    CHECK(lease_clock_now(&next) >= UINT64_C(1000000000000000));
    CHECK(lease_clock_since(&next, UINT64_C(1000000000000000)) <= time_mono());
    CHECK(lease_clock_since(&next, UINT64_MAX) == 0); /* in the future: nothing is due */
    CHECK(store_meta_set(b.store, "uptime", "nonsense", false, NULL) >= 0);
    CHECK(lease_clock_open(b.store, &next, NULL) == -ERR_SYSTEM);
    bed_done(&b);
}

TEST(text_is_one_json_object)
{
    static const struct event e = {
        .seq = 7, .at = 1, .kind = "a.b", .sandbox = "s\"\n", .data = "{\"x\":1}"};
    _cleanup_buf_ struct buf b = BUF_INIT(EVENT_TEXT_MAX);

    CHECK(event_to_text(&e, &b) >= 0);
    CHECK_STR(buf_data(&b), "{\"seq\":7,\"time\":\"1970-01-01T00:00:00.000Z\",\"kind\":\"a.b\","
                            "\"sandbox\":\"s\\\"\\u000a\",\"data\":{\"x\":1}}");
}
