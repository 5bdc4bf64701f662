/*
 * A reader of one exec's output: byte-exact from given offsets, live or after the end, gaps told.
 * Pulls from the journals; holds the writer back through the acknowledgements of its watch while it
 * is attached to a live exec. On the loop.
 */
#pragma once

#include "daemon/core/exec/exec.h"

struct output_stream;

enum output_kind {
    OUTPUT_NOTHING, /* not now: notify will be called */
    OUTPUT_DATA,
    OUTPUT_GAP, /* offset to `to` is gone */
    OUTPUT_END, /* all is read and the exec has ended: output_stream_end_text() */
};

struct output_chunk {
    enum output_kind kind;
    enum journal_stream which;
    uint64_t offset, to;
    size_t len;
};

struct output_stream_config {
    uint64_t offsets[JOURNAL_STREAMS];
    bool want[JOURNAL_STREAMS];
    bool follow; /* attach to a live exec; else what is there now is all */
    void (*notify)(
        void *arg); /* something may be there to read; never from inside output_stream_new() */
    void *arg;
};

/* Of a live exec (a reference is taken). */
struct output_stream *output_stream_new_live(struct exec *x, const struct output_stream_config *c);
/* Of exec `id` (or "last") of the sandbox, live or not. */
int output_stream_new(struct manager *m, struct sandbox *sb, const char *id,
                      const struct output_stream_config *c, struct output_stream **ret,
                      struct err *err);
void output_stream_free(struct output_stream *s); /* NULL is fine */

/* Reads up to max bytes of either stream. Failure: the journals cannot be read. */
int output_stream_read(struct output_stream *s, void *data, size_t max, struct output_chunk *ret,
                       struct err *err);
/* The END document as text, once the exec has ended; else NULL. */
const char *output_stream_end_text(const struct output_stream *s);
struct exec *
output_stream_exec(const struct output_stream *s); /* NULL when it was not live at the start */
/* About how many bytes the next output_stream_read() may give; 0 when it needs no buffer. */
size_t output_stream_available(const struct output_stream *s);
/* The lowest offset of a stream that is still kept. */
uint64_t output_stream_first(struct output_stream *s, enum journal_stream which);
