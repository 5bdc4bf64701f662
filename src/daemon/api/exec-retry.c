#include "daemon/api/exec-retry.h"

#include "daemon/api/idempotency.h"
#include "daemon/api/starting.h"
#include "daemon/core/exec/exec.h"
#include "daemon/core/requests/request-key.h"
#include "lib/base/cleanup.h"

static int exec_retry_gone(const struct request_key *k, struct err *err)
{
    err_set(err, ERR_CONFLICT,
            "header 'Idempotency-Key': the command that '%s' has started is gone, exec %s",
            k->name.key, k->exec);
    return err_hint(err, "Its sandbox was removed, or its start was interrupted. To run the "
                         "command again, use a new key.");
}

static int exec_retry_events(struct api_call *c, struct sandbox *sb, const char *id,
                             const struct exec_retry *what, struct err *err)
{
    struct output_stream_config stream = {0};

    return exec_events_follow(c, sb, id, &stream, what->how->events, &what->how->wait.wire, err);
}

static bool exec_retry_waits(const struct exec_retry *what)
{
    return what->how->waits || what->run;
}

static void exec_retry_live(struct api_call *c, struct exec *x, const struct exec_retry *what)
{
    if (exec_retry_waits(what))
        wait_start(c, exec_ref(x), &what->how->wait);
    else
        starting_follow(c, exec_ref(x), what->member);
}

/* It has ended. Takes the document of the exec. */
static int exec_retry_ended(struct api_call *c, struct sandbox *sb, json_t *exec,
                            const struct exec_retry *what, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;

    if (!exec_retry_waits(what)) {
        call_reply(c, 201, json_pack("{s:o}", what->member, exec));
        return 0;
    }
    doc = json_pack("{s:o}", "exec", exec);
    if (wait_add_stored(c->manager, sb, doc, &what->how->wait, err) < 0)
        return -err->code;
    call_reply(c, 200, TAKE_PTR(doc));
    return 0;
}

static int exec_retry_follow(struct api_call *c, struct sandbox *sb, const char *id,
                             const struct exec_retry *what, struct err *err)
{
    struct exec *live = exec_find_live(sb, id);
    json_t *doc = NULL;
    int r;

    if (!live && exec_get_json(c->manager, sb, id, &doc, NULL) < 0)
        return 0;
    if (what->how->events) {
        json_decref(doc);
        r = exec_retry_events(c, sb, id, what, err);
        return r < 0 ? r : 1;
    }
    if (!live) {
        r = exec_retry_ended(c, sb, doc, what, err);
        return r < 0 ? r : 1;
    }
    exec_retry_live(c, live, what);
    return 1;
}

int exec_retry(struct api_call *c, const struct exec_retry *what, struct err *err)
{
    const struct request_key *k = idempotency_key(c);
    struct sandbox *sb = NULL;
    bool made;
    int r = 0;

    if (!k || k->known == REQUEST_IS_NEW)
        return 0;
    made = *k->sandbox;
    if (made || !what->run)
        sb = manager_find(c->manager, made ? k->sandbox : c->params[0], NULL);
    if (sb && sb->state != SANDBOX_REMOVING) /* then its output is incomplete */
        r = exec_retry_follow(c, sb, k->exec, what, err);
    return r == 0 && made ? exec_retry_gone(k, err) : r;
}

void exec_retry_prepare(const struct api_call *c, struct exec_request *req)
{
    if (idempotency_key(c))
        request_key_prepare(idempotency_key(c), req);
}

void exec_retry_made(const struct api_call *c, struct exec *x)
{
    if (idempotency_key(c))
        request_key_made(idempotency_key(c), x);
}
