/*
 * A reader of one exec's output, exact to the byte, from given offsets, while the exec runs or
 * after its end. Bytes that are gone are reported as gaps. It reads the journals. While it is
 * attached to a live exec, its acknowledgements stop a writer that is too far ahead. All on the
 * loop.
 */
#pragma once

#include "daemon/core/exec/exec.h"

struct output_stream;

enum output_kind {
    OUTPUT_NOTHING, /* nothing now; notify will be called */
    OUTPUT_DATA,
    OUTPUT_GAP, /* bytes from offset to `to` are gone */
    OUTPUT_END, /* all is read and the exec has ended; see output_stream_end_text() */
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
    bool follow; /* attach to a live exec; else only read what is there now */
    void (*notify)(
        void *arg); /* there may be more to read; never called from inside output_stream_new() */
    void *arg;
};

/* Of a live exec; takes a reference. */
struct output_stream *output_stream_new_live(struct exec *x, const struct output_stream_config *c);
/* Of exec `id` (or "last") of the sandbox, live or not. */
int output_stream_new(struct manager *m, struct sandbox *sb, const char *id,
                      const struct output_stream_config *c, struct output_stream **ret,
                      struct err *err);
void output_stream_free(struct output_stream *s); /* NULL is allowed */

/* Reads up to max bytes of one of the streams. Fails when the journals cannot be read. */
int output_stream_read(struct output_stream *s, void *data, size_t max, struct output_chunk *ret,
                       struct err *err);
/* The END document as text; NULL until the exec has ended. */
const char *output_stream_end_text(const struct output_stream *s);
struct exec *
output_stream_exec(const struct output_stream *s); /* NULL when it was not live at the start */
/* An estimate of the bytes that the next output_stream_read() gives; 0 when it needs no buffer. */
size_t output_stream_available(const struct output_stream *s);
/* The lowest offset that is still kept. *ret_end (may be NULL): the length of the stream so
 * far. */
uint64_t output_stream_first(struct output_stream *s, enum journal_stream which, uint64_t *ret_end);
/* When the bytes of one stream were written (lib/journal/times.h). The caller frees *ret. */
int output_stream_times(struct output_stream *s, enum journal_stream which, struct times_mark **ret,
                        size_t *ret_n, struct err *err);
/* Continues at a higher offset, before the first read. False: the exec has ended, and no byte is
 * left there. */
bool output_stream_skip(struct output_stream *s, enum journal_stream which, uint64_t offset);
