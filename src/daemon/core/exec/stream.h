/*
 * A reader of one exec's output: byte-exact from given offsets, live or after the end, gaps told.
 * Pulls from the journals; holds the writer back through the acknowledgements of its watch while it
 * is attached to a live exec. On the loop.
 */
#pragma once

#include "daemon/core/exec/exec.h"

struct stream;

enum stream_kind {
    STREAM_NOTHING, /* not now: notify will be called */
    STREAM_DATA,
    STREAM_GAP, /* offset to `to` is gone */
    STREAM_END, /* all is read and the exec has ended: stream_end_text() */
};

struct stream_chunk {
    enum stream_kind kind;
    enum journal_stream which;
    uint64_t offset, to;
    size_t len;
};

struct stream_config {
    uint64_t offsets[JOURNAL_STREAMS];
    bool want[JOURNAL_STREAMS];
    bool follow;               /* attach to a live exec; else what is there now is all */
    void (*notify)(void *arg); /* something may be there to read; never from inside stream_new() */
    void *arg;
};

/* Of a live exec (a reference is taken). */
struct stream *stream_new_live(struct exec *x, const struct stream_config *c);
/* Of exec `id` (or "last") of the sandbox, live or not. */
int stream_new(struct manager *m, struct sandbox *sb, const char *id, const struct stream_config *c,
               struct stream **ret, struct err *err);
void stream_free(struct stream *s); /* NULL is fine */

/* Reads up to max bytes of either stream. Failure: the journals cannot be read. */
int stream_read(struct stream *s, void *data, size_t max, struct stream_chunk *ret,
                struct err *err);
/* The END document as text, once the exec has ended; else NULL. */
const char *stream_end_text(const struct stream *s);
struct exec *stream_exec(const struct stream *s); /* NULL when it was not live at the start */
/* About how many bytes the next stream_read() may give; 0 when it needs no buffer. */
size_t stream_available(const struct stream *s);
/* The lowest offset of a stream that is still kept. */
uint64_t stream_first(struct stream *s, enum journal_stream which);
