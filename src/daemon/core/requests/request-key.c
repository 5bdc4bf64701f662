#include "daemon/core/requests/request-key.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define KEEP (24 * UINT64_C(3600) * USEC_PER_SEC)
#define CLEAN_EVERY (60 * USEC_PER_SEC)

enum { KEYS_MAX = 10000, ANSWERS_MAX = 64 << 20, DROP_AT_ONCE = 64 };

/* Messages begin so that `details` names the header. */
#define HEADER "header 'Idempotency-Key'"

static void request_key_copy_row(void *arg, const struct store_key *row)
{
    struct request_key *k = arg;

    snprintf(k->name.digest, sizeof(k->name.digest), "%s", row->request);
    snprintf(k->exec, sizeof(k->exec), "%s", row->exec);
    snprintf(k->sandbox, sizeof(k->sandbox), "%s", row->sandbox ? row->sandbox : "");
    k->status = row->status;
    k->body = row->body ? xstrdup(row->body) : NULL;
    if (row->at + KEEP < time_wall())
        k->known = REQUEST_IS_NEW;
    else
        k->known = row->status ? REQUEST_IS_ANSWERED : REQUEST_HAS_EXEC;
}

static bool request_key_is_open(const struct manager *m, const char *key)
{
    for (const struct request_key *k = m->request_keys; k; k = k->next)
        if (STREQ(k->name.key, key))
            return true;
    return false;
}

static int request_key_check(const struct request_key *k, const struct request_name *name,
                             struct err *err)
{
    if (!STREQ(k->name.digest, name->digest)) {
        err_set(err, ERR_CONFLICT, HEADER ": '%s' was used for another request", name->key);
        return err_hint(err, "Use a new key for each request, and the same key only to send the "
                             "very same request again.");
    }
    if (k->known == REQUEST_IS_ANSWERED || *k->sandbox)
        return 0;
    if (request_key_is_open(k->m, name->key)) {
        err_set(err, ERR_CONFLICT, HEADER ": the first request with '%s' is under way", name->key);
        return err_hint(err, "Send the request again in a moment, with the same key.");
    }
    if (name->makes_exec)
        return 0;
    err_set(err, ERR_CONFLICT, HEADER ": the daemon ended during the first request with '%s'",
            name->key);
    return err_hint(err, "Look whether the request had its effect. To repeat it, use a new key.");
}

/* ---- limits ---- */

static int request_keys_count(struct manager *m, struct err *err)
{
    int r = m->request_keys_counted ? 0 : store_key_size(m->store, &m->request_keys_size, err);

    m->request_keys_counted = r >= 0;
    return r;
}

/* Removes several at once, because a count reads all of them. */
static int request_keys_drop_some(struct manager *m, struct err *err)
{
    int r = 1, n = 0;

    for (; r > 0 && n < DROP_AT_ONCE; n++)
        r = store_key_drop_oldest(m->store, err);
    m->request_keys_counted = false;
    if (r == 0 && n == 1)
        return err_set(err, ERR_LIMIT, HEADER ": too many requests with keys are under way");
    return MIN(r, 0);
}

/* Makes room for more keys, and for more bytes of answers, and counts them. */
static int request_keys_reserve(struct manager *m, unsigned keys, size_t bytes, struct err *err)
{
    struct store_key_size *size = &m->request_keys_size;
    int r = request_keys_count(m, err);

    while (r >= 0 && (size->keys + keys > KEYS_MAX || size->bytes + bytes > ANSWERS_MAX)) {
        r = request_keys_drop_some(m, err);
        if (r >= 0)
            r = request_keys_count(m, err);
    }
    if (r < 0)
        return r;
    size->keys += keys;
    size->bytes += bytes;
    return 0;
}

void request_keys_tick(struct manager *m)
{
    uint64_t now = time_mono(), wall = time_wall();

    if (now < m->request_keys_clean_at)
        return;
    m->request_keys_clean_at = now + CLEAN_EVERY;
    m->request_keys_counted = false;
    (void)!store_key_expire(m->store, wall - MIN(wall, KEEP), NULL);
}

/* ---- one key ---- */

static int request_key_add(struct request_key *k, struct err *err)
{
    const struct store_key row = {
        .key = k->name.key, .request = k->name.digest, .at = time_wall(), .exec = k->exec};
    int r = request_keys_reserve(k->m, 1, 0, err);

    return r < 0 ? r : store_key_add(k->m->store, &row, err);
}

static int request_key_load(struct request_key *k, const struct request_name *name, struct err *err)
{
    int r = store_key_get(k->m->store, name->key, request_key_copy_row, k, err);

    if (r < 0)
        return r;
    if (r > 0 && k->known != REQUEST_IS_NEW)
        return request_key_check(k, name, err);
    r = r > 0 ? store_key_delete(k->m->store, name->key, err) : 0; /* it is too old */
    if (r < 0)
        return r;
    free(k->body);
    *k = (struct request_key){.m = k->m, .name = *name};
    r = random_hex(k->exec, err);
    return r < 0 ? r : request_key_add(k, err);
}

int request_key_take(struct manager *m, const struct request_name *name, struct request_key **ret,
                     struct err *err)
{
    struct request_key *k = xnew0(struct request_key);
    int r;

    k->m = m;
    k->name = *name;
    r = request_key_load(k, name, err);
    if (r < 0) {
        request_key_free(k);
        return r;
    }
    if (k->known != REQUEST_IS_ANSWERED && !*k->sandbox) { /* this request makes it */
        k->next = m->request_keys;
        m->request_keys = k;
    }
    *ret = k;
    return 0;
}

void request_key_prepare(const struct request_key *k, struct exec_request *req)
{
    memcpy(req->id, k->exec, sizeof(req->id));
    req->store_first = true;
}

static void request_key_close(struct request_key *k)
{
    for (struct request_key **at = &k->m->request_keys; *at; at = &(*at)->next)
        if (*at == k) {
            *at = k->next;
            return;
        }
}

void request_key_made(struct request_key *k, struct exec *x)
{
    _cleanup_err_ struct err err = ERR_INIT;

    x->request_key = xstrdup(k->name.key);
    snprintf(k->sandbox, sizeof(k->sandbox), "%s", x->sandbox_name);
    if (store_key_set_exec(k->m->store, k->name.key, k->sandbox, &err) < 0)
        manager_warn(k->m, "the key of exec %s cannot be saved: %s", x->id, err.msg);
    else
        request_key_close(k);
}

void request_key_answer(struct request_key *k, int status, const char *body)
{
    _cleanup_err_ struct err err = ERR_INIT;
    size_t len = strlen(body);

    if (k->status || len > REQUEST_ANSWER_MAX)
        return;
    k->status = status;
    if (request_keys_reserve(k->m, 0, len, &err) < 0 ||
        store_key_set_answer(k->m->store, k->name.key, status, body, &err) < 0)
        manager_warn(k->m, "the answer to a request with a key cannot be saved: %s", err.msg);
}

void request_key_failed(struct request_key *k)
{
    if (!*k->sandbox && !k->status)
        request_key_forget(k->m, k->name.key);
}

void request_key_forget(struct manager *m, const char *key)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (store_key_delete(m->store, key, &err) < 0)
        manager_warn(m, "the key of a failed request cannot be removed: %s", err.msg);
    m->request_keys_counted = false;
}

void request_key_free(struct request_key *k)
{
    if (!k)
        return;
    request_key_close(k);
    free(k->body);
    free(k);
}
