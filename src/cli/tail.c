#include "cli/tail.h"

#include <string.h>

#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { TAIL_FIRST_PART = 64 << 10, TAIL_GROWTH = 8 };

/* The starts of the last lines in a part of the stream. */
struct tail {
    uint64_t at, end;  /* offset of the next byte; the part ends there */
    uint64_t *starts;  /* owned ring of `lines` offsets */
    uint64_t lines, n; /* n starts were seen */
};

static int tail_on_piece(void *userdata, const char *data, size_t len, struct err *err)
{
    struct tail *t = userdata;
    const char *p = data, *stop = data + MIN((uint64_t)len, t->end - t->at);

    (void)err;
    while ((p = memchr(p, '\n', (size_t)(stop - p)))) {
        uint64_t start = t->at + (uint64_t)(++p - data);

        if (start < t->end) /* the newline at the very end begins no line */
            t->starts[t->n++ % t->lines] = start;
    }
    t->at += (uint64_t)(stop - data);
    return 0;
}

/* Looks at the bytes from `from` to the end. Returns 1 when they hold all wanted lines. */
static int tail_scan(struct client *c, const char *target, struct tail *t, uint64_t from,
                     struct err *err)
{
    _cleanup_free_ char *whole = xasprintf("%s?offset=%llu", target, (unsigned long long)from);
    int r;

    t->at = from;
    t->n = 0;
    r = client_download(c, whole, tail_on_piece, t, err);
    return r < 0 ? r : t->n >= t->lines;
}

int tail_offset(struct client *c, const char *sandbox, const json_t *exec, const char *stream,
                uint64_t lines, uint64_t *ret, struct err *err)
{
    const json_t *stored = json_object_get(json_object_get(exec, "output"), stream);
    uint64_t first = json_number_of(stored, "offset"), end = json_number_of(stored, "end");
    _cleanup_free_ char *target =
        xasprintf("/v1/sandboxes/%s/execs/%s/%s", sandbox, json_text_of(exec, "id"), stream);
    _cleanup_free_ uint64_t *starts = xcalloc(MAX(lines, (uint64_t)1), sizeof(*starts));
    struct tail t = {.end = end, .starts = starts, .lines = lines};

    *ret = lines ? first : end;
    if (!lines || first >= end)
        return 0;
    for (uint64_t part = TAIL_FIRST_PART;; part *= TAIL_GROWTH) {
        uint64_t from = end - first > part ? end - part : first;
        int r = tail_scan(c, target, &t, from, err);

        if (r < 0)
            return r;
        if (r) {
            *ret = starts[t.n % lines];
            return 0;
        }
        if (from == first)
            return 0;
    }
}
