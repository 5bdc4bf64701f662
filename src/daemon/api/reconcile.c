#include "daemon/core/reconcile/reconcile.h"
#include "daemon/api/call.h"
#include "lib/base/cleanup.h"

static void api_reconcile_reply(struct api_call *c, int status, uint64_t run, bool brief)
{
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *report = reconcile_report(c->manager, run);

    if (!report && run) {
        err_set(&err, ERR_NOT_FOUND,
                "reconcile run %llu: no such run, or a later one has replaced its report",
                (unsigned long long)run);
        call_reply_err(c, &err);
        return;
    }
    if (brief && report)
        json_object_del(report, "results");
    call_reply(c, status, json_pack("{s:o}", "reconcile", report ? report : json_null()));
}

void handle_reconcile_get(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    bool brief = false;
    uint64_t run = 0;

    if (call_query_u64(c, "run", &run, &err) < 0 || call_query_bool(c, "brief", &brief, &err) < 0)
        call_reply_err(c, &err);
    else
        api_reconcile_reply(c, 200, run, brief);
}

static void api_reconcile_ended(void *arg)
{
    struct api_call *c = arg;

    api_reconcile_reply(c, 200, c->number, false);
}

/* Answers when the run has ended. Without `wait`: at once, with the number of the run. */
void handle_reconcile(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct reconcile_options options = {.trigger = "command"};
    bool wait = true;
    const struct json_field fields[] = {
        {"dry_run", JSON_FIELD_BOOL, &options.dry_run},
        {"from_engine", JSON_FIELD_BOOL, &options.from_engine},
        {"wait", JSON_FIELD_BOOL, &wait},
    };

    if (json_read(c->body, NULL, fields, ARRAY_SIZE(fields), &err) < 0)
        call_reply_err(c, &err);
    else if (wait)
        c->number = reconcile_request(c->manager, &options, api_reconcile_ended, c);
    else
        api_reconcile_reply(c, 202, reconcile_request(c->manager, &options, NULL, NULL), true);
}
