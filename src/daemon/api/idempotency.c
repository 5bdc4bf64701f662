#include "daemon/api/idempotency.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/routes.h"
#include "daemon/core/requests/request-key.h"
#include "lib/base/blake2b.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

#define HEADER "header 'Idempotency-Key'"

struct call_key {
    struct request_name name;
    struct request_key *taken; /* from idempotency_admit() on */
};

/* ---- the request ---- */

static int idempotency_check_text(const char *text, struct err *err)
{
    size_t len = strlen(text);

    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_set(err, ERR_INVALID, HEADER ": a key has visible ASCII characters only");
    if (len > 0 && len < REQUEST_KEY_SIZE)
        return 0;
    return err_set(err, ERR_INVALID, HEADER ": a key has 1 to %d characters", REQUEST_KEY_SIZE - 1);
}

/* Requests of these methods have their effect once by themselves. */
static bool idempotency_is_needless(const struct route *route)
{
    return !STREQ(route->method, "POST");
}

static int idempotency_check_route(const struct api_call *c, struct err *err)
{
    if (call_wants_upgrade(c)) {
        err_set(err, ERR_UNSUPPORTED, HEADER ": not supported with an upgrade");
        return err_hint(err, "Start the command without an upgrade, with the key, and attach to "
                             "it.");
    }
    if (c->route->flags & ROUTE_KEY)
        return 0;
    err_set(err, ERR_UNSUPPORTED, HEADER ": not supported by POST %s", c->route->pattern);
    return err_hint(err, "Leave the header out.");
}

/* Each part ends with a NUL, and none contains one but the body, which is last. */
static void idempotency_digest(const struct api_call *c, char *ret)
{
    const char *parts[] = {c->route->method, http_req_path(c->req),
                           http_req_query(c->req) ? http_req_query(c->req) : ""};
    struct blake2b b;
    size_t len;
    const char *body = http_req_body(c->req, &len);

    blake2b_init(&b);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        blake2b_add(&b, parts[i], strlen(parts[i]) + 1);
    blake2b_add(&b, body, len);
    blake2b_end(&b, ret);
}

int idempotency_read(struct api_call *c, struct err *err)
{
    const char *text = http_field_get(http_req_head(c->req), "idempotency-key");

    if (!text || idempotency_is_needless(c->route))
        return 0;
    if (idempotency_check_text(text, err) < 0 || idempotency_check_route(c, err) < 0)
        return err_code_http(err->code);
    c->key = xnew0(struct call_key);
    snprintf(c->key->name.key, sizeof(c->key->name.key), "%s", text);
    idempotency_digest(c, c->key->name.digest);
    c->key->name.makes_exec = c->route->flags & ROUTE_EXEC;
    return 0;
}

/* ---- the answer ---- */

bool idempotency_admit(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const struct request_key *k;

    if (!c->key)
        return true;
    if (request_key_take(c->manager, &c->key->name, &c->key->taken, &err) < 0) {
        call_reply_err(c, &err);
        return false;
    }
    k = c->key->taken;
    if (k->known != REQUEST_IS_ANSWERED)
        return true;
    call_reply_text(c, k->status, k->body);
    return false;
}

struct request_key *idempotency_key(const struct api_call *c)
{
    return c->key ? c->key->taken : NULL;
}

bool idempotency_is_repeat(const struct api_call *c)
{
    const struct request_key *k = idempotency_key(c);

    return k && k->known != REQUEST_IS_NEW;
}

void idempotency_answered(struct api_call *c, int status, const char *json)
{
    if (idempotency_key(c) && status != 202)
        request_key_answer(c->key->taken, status, json);
}

void idempotency_failed(struct api_call *c)
{
    if (idempotency_key(c))
        request_key_failed(c->key->taken);
}

void idempotency_done(struct api_call *c)
{
    if (!c->key)
        return;
    request_key_free(c->key->taken);
    free(c->key);
}
