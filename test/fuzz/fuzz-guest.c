/*
 * Frames of relay and guest, both ways: a frame lies inside its bytes and within its bounds, and
 * what was read from it, written again, reads the same.
 */
#include "fuzz.h"
#include "proto/guest.h"

#include "lib/base/strv.h"

static void same_strv(char *const *a, char *const *b)
{
    MUST(strv_len(a) == strv_len(b));
    for (size_t i = 0; a && a[i]; i++)
        MUST(strcmp(a[i], b[i]) == 0);
}

static void check_spec(const struct buf *fields)
{
    struct buf wire = BUF_INIT(GUEST_SPEC_WIRE_MAX), again = BUF_INIT(GUEST_SPEC_MAX);
    struct guest_spec a = {0}, b = {0};
    struct guest_frame f;
    size_t at = 0, used;

    if (guest_get_spec(fields, &a, NULL) < 0)
        return;
    MUST(a.argv && *a.argv[0]);
    if (guest_put_spec(&wire, &a, GUEST_VERSION_MINOR, NULL) == 0) {
        while (guest_parse(buf_data(&wire) + at, wire.len - at, GUEST_SIDE_RELAY, &f, &used,
                           NULL) == 1 &&
               f.type == GUEST_SPEC) {
            MUST(guest_collect_spec(&again, &f, NULL) == 0);
            at += used;
        }
        MUST(f.type == GUEST_RUN && at + used == wire.len);
        MUST(guest_get_spec(&again, &b, NULL) == 0);
        same_strv(a.argv, b.argv);
        same_strv(a.env, b.env);
        MUST(!a.cwd == !b.cwd && (!a.cwd || strcmp(a.cwd, b.cwd) == 0) && a.flags == b.flags);
    }
    guest_spec_done(&a);
    guest_spec_done(&b);
    buf_done(&wire);
    buf_done(&again);
}

static void same_frame(const struct buf *b, const struct guest_frame *f)
{
    MUST(b->len == GUEST_HEAD_SIZE + f->length);
    MUST(memcmp(buf_data(b) + GUEST_HEAD_SIZE, f->data, f->length) == 0);
}

static void check_guest(const struct guest_frame *f)
{
    struct buf b = BUF_INIT(1 << 20);
    struct err err = ERR_INIT;
    struct guest_hello hello;
    struct guest_exit ex;
    struct guest_done done;

    if (f->type == GUEST_HELLO) {
        (void)guest_get_hello(f, &hello, NULL);
    } else if (f->type == GUEST_EXIT && guest_get_exit(f, &ex, NULL) == 0) {
        MUST(guest_put_exit(&b, &ex) == 0);
        same_frame(&b, f);
    } else if (f->type == GUEST_DONE) {
        guest_get_done(f, &done);
        MUST(guest_put_done(&b, &done) == 0);
        same_frame(&b, f);
    } else if (f->type == GUEST_FAILED && guest_get_failed(f, &err) == 0) {
        MUST(err.code != ERR_NONE && guest_put_failed(&b, &err) == 0);
        same_frame(&b, f);
    } else if (f->type == GUEST_STARTED || f->type == GUEST_STDIN_ACK) {
        MUST(guest_put_u32(&b, f->type, guest_get_u32(f)) == 0);
        same_frame(&b, f);
    }
    err_done(&err);
    buf_done(&b);
}

static void check_relay(const struct guest_frame *f, struct buf *fields)
{
    uint16_t rows, cols;
    int sig;

    if (f->type == GUEST_SPEC)
        (void)guest_collect_spec(fields, f, NULL);
    else if (f->type == GUEST_RUN)
        check_spec(fields);
    else if (f->type == GUEST_SIGNAL && guest_get_signal(f, &sig, NULL) == 0)
        MUST(sig >= 1 && sig <= GUEST_SIGNAL_MAX);
    else if (f->type == GUEST_RESIZE)
        guest_get_resize(f, &rows, &cols);
    else if (f->type == GUEST_KILL)
        (void)guest_get_kill(f);
}

static void walk(const char *data, size_t size, enum guest_side from)
{
    struct buf fields = BUF_INIT(GUEST_SPEC_MAX);
    struct guest_frame f;
    size_t at = 0, used = 0;

    while (guest_parse(data + at, size - at, from, &f, &used, NULL) == 1) {
        MUST(used == GUEST_HEAD_SIZE + f.length && used <= size - at);
        MUST(f.data == data + at + GUEST_HEAD_SIZE && f.length <= GUEST_PAYLOAD_MAX);
        if (from == GUEST_SIDE_GUEST)
            check_guest(&f);
        else
            check_relay(&f, &fields);
        at += used;
    }
    buf_done(&fields);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf fields = BUF_INIT(1 << 20);
    char *copy = fuzz_copy(data, size);

    walk(copy, size, GUEST_SIDE_RELAY);
    walk(copy, size, GUEST_SIDE_GUEST);
    /* Once more as the fields themselves, without frames around them. */
    if (size && size <= GUEST_SPEC_MAX && buf_append(&fields, copy, size) == 0)
        check_spec(&fields);
    buf_done(&fields);
    free(copy);
    return 0;
}
