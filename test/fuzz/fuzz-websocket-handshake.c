/*
 * The opening handshake: a request that is accepted gets an answer that parses and that a client
 * with this key accepts; whatever a server answers, only a protocol that was offered is chosen.
 */
#include "fuzz.h"
#include "lib/base/buf.h"
#include "lib/base/macro.h"
#include "lib/http/wire/websocket.h"

static const char *const protocols[] = {"ripcord-exec.v1", "ripcord-terminal.v1", NULL};

static void must_be_accepted(const struct http_head *h)
{
    struct buf b = BUF_INIT(4000);
    const char *protocol = websocket_choose_protocol(h, protocols), *got;
    struct http_head answer;

    MUST(buf_append_str(&b, "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n") ==
         0);
    MUST(websocket_append_answer(&b, h, protocol) == 0 && buf_append_str(&b, "\r\n") == 0);
    MUST(http_parse_response(buf_data(&b), b.len, &answer, NULL) == 0);
    MUST(websocket_check_answer(&answer, http_field_get(h, "Sec-WebSocket-Key"), protocols, &got,
                                NULL) == 0);
    MUST(got == protocol);
    buf_done(&b);
}

static void check_answer(const struct http_head *h)
{
    const char *protocol = NULL;

    if (websocket_check_answer(h, "dGhlIHNhbXBsZSBub25jZQ==", protocols, &protocol, NULL) < 0)
        return;
    MUST(h->status == 101 && http_field_get(h, "Sec-WebSocket-Accept"));
    MUST(!protocol || protocol == protocols[0] || protocol == protocols[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *request = fuzz_copy(data, size), *response = fuzz_copy(data, size);
    size_t scanned = 0;
    ssize_t n = http_head_find(request, size, &scanned, NULL);
    struct http_head h;

    if (n > 0 && http_parse_request(request, (size_t)n, &h, NULL) >= 0 &&
        websocket_check_request(&h, NULL) >= 0)
        must_be_accepted(&h);
    if (n > 0 && http_parse_response(response, (size_t)n, &h, NULL) >= 0)
        check_answer(&h);
    free(request);
    free(response);
    return 0;
}
