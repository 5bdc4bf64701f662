#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/base/sha1.h"
#include "lib/http/wire/websocket.h"

enum { KEY_BYTES = 16 };

static const char accept_suffix[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

static void websocket_handshake_accept(const char *key, char ret[static WEBSOCKET_ACCEPT_SIZE])
{
    char text[WEBSOCKET_KEY_SIZE - 1 + sizeof(accept_suffix) - 1];
    _cleanup_free_ char *encoded = NULL;
    uint8_t digest[SHA1_LEN];

    memcpy(text, key, WEBSOCKET_KEY_SIZE - 1);
    memcpy(text + WEBSOCKET_KEY_SIZE - 1, accept_suffix, sizeof(accept_suffix) - 1);
    sha1_digest(text, sizeof(text), digest);
    encoded = base64_encode(digest, sizeof(digest));
    memcpy(ret, encoded, WEBSOCKET_ACCEPT_SIZE);
}

/* The value of a field that may be given once at most. Absent: NULL. */
static int websocket_handshake_field(const struct http_head *h, const char *name, const char **ret,
                                     struct err *err)
{
    *ret = NULL;
    for (size_t i = 0; i < h->n_fields; i++) {
        if (strcasecmp(h->fields[i].name, name) != 0)
            continue;
        if (*ret)
            return err_set(err, ERR_INVALID, "header '%s': given twice", name);
        *ret = h->fields[i].value;
    }
    return 0;
}

static int websocket_handshake_check_key(const char *key, struct err *err)
{
    static const char field[] = "Sec-WebSocket-Key";
    _cleanup_buf_ struct buf bytes = BUF_INIT(KEY_BYTES);

    if (!key)
        return err_set(err, ERR_INVALID, "header '%s': missing", field);
    if (strlen(key) != WEBSOCKET_KEY_SIZE - 1 ||
        base64_decode(&bytes, key, strlen(key), NULL) < 0 || bytes.len != KEY_BYTES)
        return err_set(err, ERR_INVALID, "header '%s': must be 16 bytes in base64", field);
    return 0;
}

static int websocket_handshake_check_version(const struct http_head *h, struct err *err)
{
    const char *version;
    int r;

    r = websocket_handshake_field(h, "Sec-WebSocket-Version", &version, err);
    if (r < 0)
        return r;
    if (!version)
        return err_set(err, ERR_INVALID, "header 'Sec-WebSocket-Version': missing");
    if (!STREQ(version, "13"))
        return err_set(err, ERR_UNSUPPORTED, "header 'Sec-WebSocket-Version': '%.20s' must be 13",
                       version);
    return 0;
}

int websocket_check_request(const struct http_head *h, struct err *err)
{
    const char *key;
    int r;

    if (!STREQ(h->method, "GET"))
        return err_set(err, ERR_INVALID, "WebSocket: method %.20s must be GET", h->method);
    if (!h->upgrade || strcasecmp(h->upgrade, "websocket") != 0)
        return err_set(err, ERR_INVALID, "header 'Upgrade': must be websocket");
    /* The bytes behind the head would be a body for one reader and frames for another. */
    if (h->chunked || h->length)
        return err_set(err, ERR_INVALID, "WebSocket: the request must have no body");
    r = websocket_handshake_check_version(h, err);
    if (r < 0)
        return r;
    r = websocket_handshake_field(h, "Sec-WebSocket-Key", &key, err);
    return r < 0 ? r : websocket_handshake_check_key(key, err);
}

/* ---- sub-protocols ---- */

/* Takes the next entry off a comma-separated list. False: there is none. */
static bool websocket_handshake_next(const char **list, const char **ret, size_t *ret_len)
{
    const char *p = *list + strspn(*list, ", \t");
    size_t len = strcspn(p, ",");

    *list = p + len;
    while (len && (p[len - 1] == ' ' || p[len - 1] == '\t'))
        len--;
    *ret = p;
    *ret_len = len;
    return len != 0;
}

/* The names are case-sensitive. */
static const char *websocket_handshake_find(const char *const *ours, const char *name, size_t len)
{
    for (; ours && *ours; ours++)
        if (strlen(*ours) == len && memcmp(*ours, name, len) == 0)
            return *ours;
    return NULL;
}

const char *websocket_choose_protocol(const struct http_head *h, const char *const *ours)
{
    for (size_t i = 0; i < h->n_fields; i++) {
        const char *list = h->fields[i].value, *name, *found;
        size_t len;

        if (strcasecmp(h->fields[i].name, "Sec-WebSocket-Protocol") != 0)
            continue;
        while (websocket_handshake_next(&list, &name, &len)) {
            found = websocket_handshake_find(ours, name, len);
            if (found)
                return found;
        }
    }
    return NULL;
}

/* ---- answers and requests ---- */

int websocket_append_answer(struct buf *b, const struct http_head *h, const char *protocol)
{
    char accept[WEBSOCKET_ACCEPT_SIZE];
    int r;

    websocket_handshake_accept(http_field_get(h, "Sec-WebSocket-Key"), accept);
    r = buf_appendf(b, "Sec-WebSocket-Accept: %s\r\n", accept);
    if (r < 0 || !protocol)
        return r;
    return buf_appendf(b, "Sec-WebSocket-Protocol: %s\r\n", protocol);
}

void websocket_new_key(char ret[static WEBSOCKET_KEY_SIZE])
{
    _cleanup_free_ char *encoded = NULL;
    uint8_t bytes[KEY_BYTES] = {0};

    /* Cannot fail once the kernel is up. The key only has to differ. */
    (void)!getrandom(bytes, sizeof(bytes), 0);
    encoded = base64_encode(bytes, sizeof(bytes));
    memcpy(ret, encoded, WEBSOCKET_KEY_SIZE);
}

int websocket_append_request(struct buf *b, const char *key, const char *const *protocols)
{
    const char *between = "Sec-WebSocket-Protocol: ";
    int r;

    r = buf_appendf(b,
                    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: %s\r\n",
                    key);
    if (!protocols || !*protocols)
        return r;
    for (; r >= 0 && *protocols; protocols++) {
        r = buf_appendf(b, "%s%s", between, *protocols);
        between = ", ";
    }
    return r < 0 ? r : buf_append_str(b, "\r\n");
}

static int websocket_handshake_check_accept(const struct http_head *h, const char *key,
                                            struct err *err)
{
    char wanted[WEBSOCKET_ACCEPT_SIZE];
    const char *given;
    int r;

    r = websocket_handshake_field(h, "Sec-WebSocket-Accept", &given, err);
    if (r < 0)
        return r;
    websocket_handshake_accept(key, wanted);
    if ((!given || !STREQ(given, wanted)) && GUARD("websocket accept"))
        return err_set(err, ERR_INVALID, "header 'Sec-WebSocket-Accept': %s",
                       given ? "does not belong to this request" : "missing");
    return 0;
}

int websocket_check_answer(const struct http_head *h, const char *key, const char *const *protocols,
                           const char **ret_protocol, struct err *err)
{
    const char *given, *protocol = NULL;
    int r;

    if (h->status != 101)
        return err_set(err, ERR_INVALID, "WebSocket: refused with status %d", h->status);
    if (!h->upgrade || strcasecmp(h->upgrade, "websocket") != 0)
        return err_set(err, ERR_INVALID, "header 'Upgrade': must be websocket");
    r = websocket_handshake_check_accept(h, key, err);
    if (r < 0)
        return r;
    if (http_field_get(h, "Sec-WebSocket-Extensions"))
        return err_set(err, ERR_INVALID,
                       "header 'Sec-WebSocket-Extensions': no extension was offered");
    r = websocket_handshake_field(h, "Sec-WebSocket-Protocol", &given, err);
    if (r < 0)
        return r;
    if (given)
        protocol = websocket_handshake_find(protocols, given, strlen(given));
    if (given && !protocol)
        return err_set(err, ERR_INVALID, "header 'Sec-WebSocket-Protocol': '%.40s' was not offered",
                       given);
    *ret_protocol = protocol;
    return 0;
}
