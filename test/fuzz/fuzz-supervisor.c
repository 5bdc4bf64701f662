/*
 * Messages between daemon and shim: every value lies inside its packet and is NUL-terminated;
 * fields written again give the same packet.
 */
#include "fuzz.h"
#include "proto/supervisor.h"

/* Reserved bytes are not kept, and more than a message may hold cannot be written. */
static void check_again(struct sup_writer *w, const char *packet, size_t size)
{
    struct sup_reader a, b;
    struct sup_value va, vb;

    if (sup_finish(w, NULL) < 0)
        return;
    MUST(w->buf.len == size);
    MUST(sup_read(&a, packet, size, NULL) == 0 && sup_read(&b, buf_data(&w->buf), size, NULL) == 0);
    while (sup_next(&a, &va, NULL) > 0) {
        MUST(sup_next(&b, &vb, NULL) == 1);
        MUST(va.tag == vb.tag && va.length == vb.length &&
             memcmp(va.data, vb.data, va.length) == 0);
    }
    MUST(sup_next(&b, &vb, NULL) == 0);
}

static void check_packet(const char *packet, size_t size)
{
    struct err err = ERR_INIT;
    struct sup_writer w;
    struct sup_reader r;
    struct sup_value v;
    int n;

    (void)sup_read_err(packet, size, &err);
    err_done(&err);
    if (sup_read(&r, packet, size, NULL) < 0)
        return;
    sup_begin(&w, (enum sup_msg_type)r.head.type, r.head.seq);
    while ((n = sup_next(&r, &v, NULL)) > 0) {
        MUST(v.data >= packet && v.data + v.length < packet + size);
        MUST(v.data[v.length] == '\0');
        sup_put_bytes(&w, v.tag, v.data, v.length);
    }
    if (n == 0)
        check_again(&w, packet, size);
    sup_writer_done(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);

    check_packet(copy, size);
    if (size >= sizeof(struct sup_msg)) {
        /* Once more with a true length, which a fuzzer seldom guesses. */
        uint32_t length = (uint32_t)(size - sizeof(struct sup_msg));

        memcpy(copy + offsetof(struct sup_msg, length), &length, sizeof(length));
        check_packet(copy, size);
    }
    free(copy);
    return 0;
}
