/*
 * Keys that clients give to requests (`Idempotency-Key`), so that a request that is sent again has
 * its effect once. A key is stored before the request is carried out. It then gets the id of the
 * exec that the request made, and its final answer. Keys are kept for a day, over restarts of the
 * daemon; the number of keys and the bytes of their answers are limited, and the oldest go first.
 * All on the loop.
 *
 * A killed daemon never leads to a second exec: the row of an exec with a key is stored before the
 * exec is sent, and the key has its id before that.
 */
#pragma once

#include <stdbool.h>

#include "daemon/core/exec/exec.h"

struct manager;

enum {
    REQUEST_KEY_SIZE = 129,
    REQUEST_DIGEST_SIZE = 65,
    REQUEST_ANSWER_MAX = 1 << 20, /* a longer answer is not kept */
};

enum request_known {
    REQUEST_IS_NEW,
    REQUEST_HAS_EXEC, /* an earlier one has made its exec, or was about to */
    REQUEST_IS_ANSWERED,
};

/* Who sends a key, and what for. */
struct request_name {
    char key[REQUEST_KEY_SIZE], digest[REQUEST_DIGEST_SIZE]; /* of the whole request */
    bool makes_exec;
};

/* A key while a request with it is under way. */
struct request_key {
    struct request_key *next; /* in the manager's list; not there if another one is first */
    struct manager *m;
    struct request_name name;
    enum request_known known;
    char exec[EXEC_ID_LEN + 1]; /* the id that the exec has, or is to get */
    char sandbox[64];           /* the exec's; "": no exec was made, as far as is stored */
    int status;                 /* of the answer, once there is one; else 0 */
    char *body;                 /* with REQUEST_IS_ANSWERED */
};

/*
 * ERR_CONFLICT: the key belongs to another request, or an earlier one with this key is under way
 * and has made no exec yet, or the daemon ended during the earlier one and nobody knows what it
 * has done.
 */
int request_key_take(struct manager *m, const struct request_name *name, struct request_key **ret,
                     struct err *err);
/* Puts the exec's id into a request that is about to make it. */
void request_key_prepare(const struct request_key *k, struct exec_request *req);
/* The exec was made: later requests with the key follow it. Call it on the same turn of the loop,
 * so that nothing has begun when the key does not have it. */
void request_key_made(struct request_key *k, struct exec *x);
/* The request has succeeded with its final answer. */
void request_key_answer(struct request_key *k, int status, const char *body);
/* The request has failed. If it made no exec, the key is free again. */
void request_key_failed(struct request_key *k);
/* The exec with this key could not be started: the key is free again. */
void request_key_forget(struct manager *m, const char *key);
void request_key_free(struct request_key *k); /* NULL is fine */

/* Called by manager_tick(). */
void request_keys_tick(struct manager *m);
