/*
 * WebSocket (RFC 6455), version 13, for both sides of a connection: opening handshake, frames,
 * close handshake. No input or output is done here; the caller moves the bytes. Extensions are
 * neither offered nor accepted, so there is no compression.
 *
 * A reader refuses everything that the RFC forbids: reserved bits and opcodes, frames of clients
 * without a mask and of servers with one, control frames that are longer than 125 bytes or
 * fragmented, lengths that are not in their shortest form, fragments out of order, text that is not
 * UTF-8, close codes that may not be sent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/http/wire/http.h"

/* ---- opening handshake (websocket-handshake.c) ---- */

enum {
    WEBSOCKET_KEY_SIZE = 25,    /* 16 bytes in base64, and a NUL */
    WEBSOCKET_ACCEPT_SIZE = 29, /* a SHA-1 in base64, and a NUL */
};

/* Server: whether a request may be answered with 101. -ERR_UNSUPPORTED: the client speaks another
 * version; RFC 6455 wants 426 and "Sec-WebSocket-Version: 13" as the answer. */
int websocket_check_request(const struct http_head *h, struct err *err);
/* Server: the first sub-protocol of the client's list that is in ours (NULL-terminated); an entry
 * of ours, or NULL. */
const char *websocket_choose_protocol(const struct http_head *h, const char *const *ours);
/* Server: the lines of a 101 answer besides Upgrade and Connection, for a request that passed
 * websocket_check_request(). protocol NULL: none. */
int websocket_append_answer(struct buf *b, const struct http_head *h,
                            const char *protocol) _must_check_;

/* Client: a new random key. */
void websocket_new_key(char ret[static WEBSOCKET_KEY_SIZE]);
/* Client: the lines of the request, with Upgrade and Connection. protocols: NULL-terminated, or
 * NULL. */
int websocket_append_request(struct buf *b, const char *key,
                             const char *const *protocols) _must_check_;
/* Client: whether the answer accepts the request with this key. *ret_protocol is an entry of
 * `protocols`, or NULL when the server chose none. */
int websocket_check_answer(const struct http_head *h, const char *key, const char *const *protocols,
                           const char **ret_protocol, struct err *err);

/* ---- frames (websocket.c) ---- */

enum websocket_opcode {
    WEBSOCKET_MORE = 0, /* the next fragment of a message */
    WEBSOCKET_TEXT = 1,
    WEBSOCKET_BINARY = 2,
    WEBSOCKET_CLOSE = 8,
    WEBSOCKET_PING = 9,
    WEBSOCKET_PONG = 10,
};

enum websocket_code {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_GOING_AWAY = 1001,
    WEBSOCKET_PROTOCOL_ERROR = 1002,
    WEBSOCKET_UNACCEPTABLE = 1003, /* a type of data that the receiver cannot use */
    WEBSOCKET_NO_CODE = 1005,      /* never sent: a close frame without a code */
    WEBSOCKET_NOT_UTF8 = 1007,
    WEBSOCKET_POLICY = 1008,
    WEBSOCKET_TOO_BIG = 1009,
    WEBSOCKET_FAILURE = 1011, /* of the server */
    WEBSOCKET_TRY_LATER = 1013,
};

enum {
    WEBSOCKET_CONTROL_MAX = 125,
    WEBSOCKET_REASON_MAX = WEBSOCKET_CONTROL_MAX - 2,
    WEBSOCKET_HEAD_MAX = 14, /* of a frame, with its mask */
};

enum websocket_side { WEBSOCKET_SERVER, WEBSOCKET_CLIENT };

/* How far a UTF-8 text that arrives in pieces is checked: the range of the next byte. */
struct websocket_utf8 {
    uint8_t left; /* bytes of the character that are missing; 0: at its start */
    uint8_t low, high;
};

/* One side of a connection. The only memory is that of the message, up to the limit. */
struct websocket {
    enum websocket_side side;
    /* of the frame that is being read */
    uint8_t head[WEBSOCKET_HEAD_MAX], head_len;
    bool in_payload;
    uint64_t length, at; /* of its payload; how many bytes are read */
    uint8_t control[WEBSOCKET_CONTROL_MAX];

    struct buf message;          /* the fragments so far */
    uint8_t opcode;              /* of the message; WEBSOCKET_MORE: none has begun */
    struct websocket_utf8 utf8;  /* of a text message */
    bool delivered;              /* message holds what websocket_read() returned last */
    bool close_sent, close_read; /* both: the close handshake is complete */
    enum websocket_code failed;  /* what to close with after a refusal; 0: nothing was refused */
};

/* What websocket_read() returns; valid until its next call. */
struct websocket_message {
    enum websocket_opcode opcode; /* never WEBSOCKET_MORE */
    const char *data;             /* of WEBSOCKET_CLOSE: the reason, UTF-8 */
    size_t len;
    enum websocket_code code; /* of WEBSOCKET_CLOSE, else 0 */
};

void websocket_init(struct websocket *w, enum websocket_side side, size_t message_max);
void websocket_done(struct websocket *w);

/*
 * Consumes *used bytes. 1 and *ret: a whole message or control frame; call it again with the rest.
 * 0: all bytes are consumed, more are needed. Control frames may arrive between the fragments of a
 * message. Bytes behind a close frame are consumed and ignored.
 *
 * -ERR_INVALID and -ERR_LIMIT end the connection: append a close frame with the code w->failed,
 * send it and close. Every later call fails in the same way.
 */
int websocket_read(struct websocket *w, const char *data, size_t len, size_t *used,
                   struct websocket_message *ret, struct err *err);

/* Appends one frame with a whole message, or a ping or pong. -ERR_CONFLICT: our close frame is
 * sent, and nothing may follow it. -ERR_LIMIT: it does not fit into b, or into a control frame. */
int websocket_append(struct websocket *w, struct buf *b, enum websocket_opcode opcode,
                     const void *data, size_t len) _must_check_;
/* The close frame; nothing if it is sent already. WEBSOCKET_NO_CODE: one without code and reason,
 * as an answer to such a one. A reason that is too long is cut between characters. */
int websocket_append_close(struct websocket *w, struct buf *b, enum websocket_code code,
                           const char *reason) _must_check_;
/* Whether a close frame may carry this code. */
bool websocket_code_is_valid(unsigned code);

/* For writers that lay out their own blocks: the head of an unfragmented frame, returning its
 * length. mask NULL: none, as servers send it. */
size_t websocket_put_head(char p[static WEBSOCKET_HEAD_MAX], enum websocket_opcode opcode,
                          uint64_t len, const uint8_t mask[4]);
/* Masks in place, or takes the mask off. at: the position of data[0] in the payload. */
void websocket_mask(char *data, size_t len, const uint8_t mask[static 4], uint64_t at);
