/*
 * What an agent writes, as the events of its session: the same events however the bytes come, no
 * byte lost, each event one line and one JSON object.
 */
#include "daemon/core/session/session-line.h"
#include "fuzz.h"
#include "lib/base/json.h"
#include "lib/base/jsontext.h"

/* Cuts the whole input in steps; *ret gets the events, one per line. */
static void run(const char *data, size_t size, size_t step, size_t max, struct buf *ret)
{
    struct session_line l;
    size_t at = 0, have = 0;
    uint32_t part = 0;

    do {
        have = step < size - have ? have + step : size;
        while (session_line_next(data + at, have - at, have == size, part, max, &l)) {
            MUST(l.len <= max && l.used <= have - at && l.data == data + at);
            MUST(l.used > 0 || (have == size && at == size && part));
            MUST(!memchr(l.data, '\n', l.len));
            MUST(session_line_event(&l, at % 3 ? JOURNAL_STDOUT : JOURNAL_STDERR, ret) >= 0);
            MUST(buf_append_c(ret, '\n') >= 0);
            part = l.last ? 0 : l.part;
            at += l.used;
        }
    } while (have < size);
    MUST(at == size && !part);
}

static void check_events(const struct buf *b)
{
    for (const char *p = buf_data(b), *nl;
         (nl = memchr(p, '\n', b->len - (size_t)(p - buf_data(b)))); p = nl + 1) {
        MUST(json_text_kind(p, (size_t)(nl - p)) == JSON_TEXT_OBJECT);
        MUST(!memchr(p, '\r', (size_t)(nl - p)));
    }
}

/* The scanner finds the member that a real parser finds. It may find more: a key in upper case, or
 * the first of two. */
static void check_member(const char *copy, size_t size)
{
    static const char *const values[] = {"exit", "gap", NULL};
    json_t *j = json_loadb(copy, size, JSON_ALLOW_NUL, NULL);
    json_t *type = json_object_get(j, "type");

    for (size_t i = 0; values[i] && json_is_string(type); i++)
        if (json_string_length(type) == strlen(values[i]) &&
            strcmp(json_string_value(type), values[i]) == 0)
            MUST(json_text_has_member(copy, size, "type", values) ||
                 json_text_kind(copy, size) == JSON_TEXT_BAD);
    json_decref(j);
}

/* A real parser accepts everything that we accept as JSON, except what it refuses on purpose. */
static void check_kind(char *copy, size_t size)
{
    enum json_text_kind kind = json_text_kind(copy, size);
    json_t *j = json_loadb(copy, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    size_t len = size;

    if (j)
        MUST(kind == (json_is_object(j) ? JSON_TEXT_OBJECT : JSON_TEXT_OTHER) ||
             kind == JSON_TEXT_BAD);
    json_decref(j);
    if (json_text_compact(copy, &len, NULL) < 0) {
        MUST(kind == JSON_TEXT_BAD);
        return;
    }
    MUST(kind != JSON_TEXT_BAD && len <= size && json_text_kind(copy, len) == kind);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = BUF_INIT(64 << 20), steps = BUF_INIT(64 << 20);
    size_t max = size ? 4 + data[0] % 60 : 4;
    char *copy = fuzz_copy(data, size);

    if (size < 1 << 16) {
        run(copy, size, size ? size : 1, max, &whole);
        run(copy, size, 1, max, &steps);
        MUST(whole.len == steps.len && memcmp(buf_data(&whole), buf_data(&steps), whole.len) == 0);
        check_events(&whole);
        check_member(copy, size);
        check_kind(copy, size);
    }
    buf_done(&whole);
    buf_done(&steps);
    free(copy);
    return 0;
}
