/*
 * Protobuf's wire format: fields in any order, each a key (number and wire type) and a value.
 * Unknown fields are skipped, as the format requires. The deprecated groups are refused, and so is
 * a value that does not fit into its message.
 */
#include "dockerapi/trace.h"

#include "lib/base/macro.h"

enum trace_wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct trace_reader {
    const uint8_t *p, *end;
};

struct trace_field {
    uint64_t number;
    uint64_t value;         /* WIRE_VARINT */
    struct trace_text text; /* WIRE_BYTES */
    enum trace_wire wire;
};

static struct trace_reader trace_reader_of(struct trace_text t)
{
    const uint8_t *p = (const uint8_t *)t.p;

    return (struct trace_reader){p, p + t.len};
}

static bool trace_take_varint(struct trace_reader *r, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;

        if (r->p == r->end)
            return false;
        byte = *r->p++;
        if (shift == 63 && byte > 1)
            return false;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

static bool trace_skip(struct trace_reader *r, uint64_t n)
{
    if (n > (uint64_t)(r->end - r->p))
        return false;
    r->p += n;
    return true;
}

static bool trace_take_value(struct trace_reader *r, struct trace_field *f)
{
    const uint8_t *start;
    uint64_t len;

    switch (f->wire) {
    case WIRE_VARINT:
        return trace_take_varint(r, &f->value);
    case WIRE_64:
        return trace_skip(r, 8);
    case WIRE_32:
        return trace_skip(r, 4);
    case WIRE_BYTES:
        if (!trace_take_varint(r, &len))
            return false;
        start = r->p;
        f->text = (struct trace_text){(const char *)start, (size_t)len};
        return trace_skip(r, len);
    default:
        return false;
    }
}

/* Returns 1; 0 at the end of the message; -1 if it is malformed. */
static int trace_next(struct trace_reader *r, struct trace_field *f)
{
    uint64_t key;

    *f = (struct trace_field){0};
    if (r->p == r->end)
        return 0;
    if (!trace_take_varint(r, &key) || key >> 3 == 0)
        return -1;
    f->number = key >> 3;
    f->wire = (enum trace_wire)(key & 7);
    return trace_take_value(r, f) ? 1 : -1;
}

static int trace_take_vertex(struct trace_text t, const struct trace_events *events, void *arg)
{
    struct trace_reader r = trace_reader_of(t);
    struct trace_vertex v = {0};
    struct trace_field f;
    int more;

    while ((more = trace_next(&r, &f)) > 0) {
        if (f.wire == WIRE_BYTES && f.number == 1)
            v.digest = f.text;
        else if (f.wire == WIRE_BYTES && f.number == 3)
            v.name = f.text;
        else if (f.wire == WIRE_VARINT && f.number == 4)
            v.cached = f.value;
        else if (f.wire == WIRE_BYTES && f.number == 5)
            v.started = true;
        else if (f.wire == WIRE_BYTES && f.number == 6)
            v.completed = true;
        else if (f.wire == WIRE_BYTES && f.number == 7)
            v.error = f.text;
    }
    if (more == 0)
        events->vertex(arg, &v);
    return more;
}

static int trace_take_status(struct trace_text t, const struct trace_events *events, void *arg)
{
    struct trace_reader r = trace_reader_of(t);
    struct trace_status s = {0};
    struct trace_field f;
    int more;

    while ((more = trace_next(&r, &f)) > 0) {
        if (f.wire == WIRE_BYTES && f.number == 1)
            s.id = f.text;
        else if (f.wire == WIRE_BYTES && f.number == 2)
            s.vertex = f.text;
        else if (f.wire == WIRE_VARINT && f.number == 4)
            s.current = f.value;
        else if (f.wire == WIRE_VARINT && f.number == 5)
            s.total = f.value;
    }
    if (more == 0)
        events->status(arg, &s);
    return more;
}

static int trace_take_log(struct trace_text t, const struct trace_events *events, void *arg)
{
    struct trace_reader r = trace_reader_of(t);
    struct trace_log l = {.stream = 1};
    struct trace_field f;
    int more;

    while ((more = trace_next(&r, &f)) > 0) {
        if (f.wire == WIRE_BYTES && f.number == 1)
            l.vertex = f.text;
        else if (f.wire == WIRE_VARINT && f.number == 3)
            l.stream = f.value == 2 ? 2 : 1;
        else if (f.wire == WIRE_BYTES && f.number == 4)
            l.text = f.text;
    }
    if (more == 0)
        events->log(arg, &l);
    return more;
}

static int trace_take_warning(struct trace_text t, const struct trace_events *events, void *arg)
{
    struct trace_reader r = trace_reader_of(t);
    struct trace_text text = {0};
    struct trace_field f;
    int more;

    while ((more = trace_next(&r, &f)) > 0)
        if (f.wire == WIRE_BYTES && f.number == 3)
            text = f.text;
    if (more == 0 && text.len)
        events->warning(arg, text);
    return more;
}

static int trace_take_part(const struct trace_field *f, const struct trace_events *events,
                           void *arg)
{
    static int (*const parts[])(struct trace_text, const struct trace_events *, void *) = {
        NULL, trace_take_vertex, trace_take_status, trace_take_log, trace_take_warning,
    };

    if (f->wire != WIRE_BYTES || f->number >= ARRAY_SIZE(parts))
        return 0;
    return parts[f->number](f->text, events, arg);
}

int trace_decode(const void *data, size_t len, const struct trace_events *events, void *arg,
                 struct err *err)
{
    struct trace_reader r = trace_reader_of((struct trace_text){data, len});
    struct trace_field f;
    int more;

    while ((more = trace_next(&r, &f)) > 0)
        if (trace_take_part(&f, events, arg) < 0)
            return err_set(err, ERR_ENGINE, "BuildKit trace: malformed part");
    if (more < 0)
        return err_set(err, ERR_ENGINE, "BuildKit trace: malformed message");
    return 0;
}
