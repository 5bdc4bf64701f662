/*
 * The files protocol, both ways: every message lies inside the bytes, every value inside its message
 * and within its row; fields written again give the same message.
 */
#include "fuzz.h"
#include "proto/files.h"

static void check_field(const struct files_message *m, const struct files_field *f)
{
    const struct files_tag_row *row = files_tag_row(f->tag);

    MUST(row && f->data >= m->data && f->data + f->length <= m->data + m->length);
    if (row->kind == FILES_KIND_PATH)
        MUST(f->length >= 1 && f->length <= FILES_PATH_MAX && f->data[0] == '/');
    if (row->kind == FILES_KIND_TYPE)
        MUST(files_type_name((unsigned)f->u64));
    if (row->kind == FILES_KIND_EVENT)
        MUST(files_event_name((unsigned)f->u64));
    if (row->kind != FILES_KIND_BYTES && f->length != 8)
        MUST(!memchr(f->data, 0, f->length));
}

static void check_message(const struct files_message *m)
{
    struct buf w = BUF_INIT(FILES_HEAD_SIZE + FILES_REQUEST_MAX);
    struct files_reader r = files_fields(m);
    struct files_field f;
    int n;

    files_begin(&w, m->type);
    while ((n = files_next(&r, &f, NULL)) > 0) {
        check_field(m, &f);
        files_put_bytes(&w, f.tag, f.data, f.length);
    }
    if (n == 0) {
        MUST(files_finish(&w, NULL) == 0 && w.len == FILES_HEAD_SIZE + m->length);
        MUST(memcmp(buf_data(&w) + FILES_HEAD_SIZE, m->data, m->length) == 0);
    }
    buf_done(&w);
}

static void check_stream(const char *data, size_t size, bool from_helper)
{
    struct files_message m;

    while (files_parse(data, size, from_helper, &m, NULL) > 0) {
        MUST(m.data == data + FILES_HEAD_SIZE && m.length <= size - FILES_HEAD_SIZE);
        check_message(&m);
        data += FILES_HEAD_SIZE + m.length;
        size -= FILES_HEAD_SIZE + m.length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size), *list = calloc(1, size + 1);

    check_stream(copy, size, true);
    check_stream(copy, size, false);
    MUST(list);
    memcpy(list, copy, size);
    (void)files_etag_listed(list, "\"a\"", true);
    free(copy);
    free(list);
    return 0;
}
