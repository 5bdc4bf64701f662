/*
 * The tar reader: read in one go and byte by byte must give the same entries, data and verdict;
 * names are bounded and whole; what was read of a good archive can be written again and reads the
 * same.
 */
#include "fuzz.h"
#include "lib/base/buf.h"
#include "lib/base/tar.h"

enum { AGAIN_MAX = 1 << 20 };

struct source {
    const char *data;
    size_t size, at, step;
};

struct outcome {
    int r;
    uint64_t entries, bytes, sum;
};

static ssize_t feed(void *arg, void *data, size_t len)
{
    struct source *s = arg;
    size_t n = MIN(MIN(len, s->size - s->at), s->step);

    memcpy(data, s->data + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

static int keep(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len) < 0 ? -1 : 0;
}

static uint64_t mix(uint64_t sum, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum = sum * 31 + ((const unsigned char *)data)[i];
    return sum;
}

static void check_entry(const struct tar_entry *e)
{
    MUST(memchr(e->path, '\0', sizeof(e->path)) && memchr(e->link, '\0', sizeof(e->link)));
    MUST((e->mode & ~07777U) == 0);
    MUST(e->type == TAR_FILE || e->size == 0);
}

static uint64_t mix_entry(uint64_t sum, const struct tar_entry *e)
{
    sum = mix(sum, e->path, strlen(e->path));
    sum = mix(sum, e->link, strlen(e->link));
    return sum * 31 + e->type + e->mode + e->size;
}

/* Writes the entry again when `w` is given; *written is false once that is not possible. */
static int read_one(struct tar_reader *r, const struct tar_entry *e, struct tar_writer *w,
                    struct outcome *o)
{
    char piece[700];
    ssize_t n;

    if (w && (e->type == TAR_OTHER || e->size > AGAIN_MAX || tar_put(w, e, NULL) < 0))
        w = NULL;
    while ((n = tar_read(r, piece, sizeof(piece), NULL)) > 0) {
        o->bytes += (uint64_t)n;
        o->sum = mix(o->sum, piece, (size_t)n);
        if (w && tar_write(w, piece, (size_t)n, NULL) < 0)
            w = NULL;
    }
    return n < 0 ? (int)n : w ? 1 : 0;
}

static bool walk(const char *data, size_t size, size_t step, struct buf *again, struct outcome *o)
{
    struct source s = {data, size, 0, step};
    struct tar_entry *e = calloc(1, sizeof(*e));
    bool written = again;
    struct tar_reader r;
    struct tar_writer w;

    MUST(e);
    *o = (struct outcome){0};
    tar_reader_init(&r, feed, &s);
    tar_writer_init(&w, keep, again);
    while ((o->r = tar_next(&r, e, NULL)) > 0) {
        check_entry(e);
        o->entries++;
        o->sum = mix_entry(o->sum, e);
        o->r = read_one(&r, e, written ? &w : NULL, o);
        if (o->r < 0)
            break;
        written &= o->r > 0;
    }
    written = written && o->r == 0 && tar_finish(&w, NULL) == 0;
    free(e);
    return written;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    struct buf again = {.max = AGAIN_MAX};
    struct outcome whole, bytes, second;

    if (walk(copy, size, size ? size : 1, &again, &whole)) {
        MUST(!walk(buf_data(&again), again.len, 512, NULL, &second));
        MUST(second.r == 0 && second.entries == whole.entries && second.bytes == whole.bytes);
        MUST(second.sum == whole.sum);
    }
    walk(copy, size, 1, NULL, &bytes);
    MUST(whole.r == bytes.r && whole.entries == bytes.entries && whole.bytes == bytes.bytes);
    MUST(whole.sum == bytes.sum);
    buf_done(&again);
    free(copy);
    return 0;
}
