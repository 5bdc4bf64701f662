/*
 * Each request has its own connection. Up to MANY_AHEAD requests are sent before the first response
 * is read, so that the daemon and the engine can work in parallel. A failure affects only its own
 * sandbox.
 */
#include "cli/many.h"

#include "cli/output.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { MANY_AHEAD = 128 }; /* half of the daemon's default limit for TCP connections */

struct task {
    const char *name; /* borrowed from argv */
    struct client client;
    json_t *answer; /* owned */
    struct err err;
};

static char *many_target_of(const struct many *m, const struct task *t)
{
    return xasprintf("/v1/sandboxes/%s%s", t->name, m->suffix);
}

static void many_send_one(struct cli *cli, const struct many *m, struct task *t)
{
    _cleanup_free_ char *target = many_target_of(m, t);

    client_init_like(&t->client, &cli->client);
    client_send(&t->client, m->method, target, NULL, m->body, &t->err);
}

/* A request that an ended daemon did not read is sent again to the next daemon. */
static void many_receive_one(const struct many *m, struct task *t)
{
    _cleanup_free_ char *target = many_target_of(m, t);

    if (!t->err.code)
        client_receive(&t->client, &t->answer, &t->err);
    if (t->err.code && client_request_unread(&t->client)) {
        err_done(&t->err);
        client_call(&t->client, m->method, target, m->body, &t->answer, &t->err);
    }
    client_done(&t->client);
}

/* Prints the result and releases the task; returns the exit status. */
static int many_report(struct cli *cli, const struct many *m, struct task *t, json_t *list)
{
    int status = err_code_exit(t->err.code);

    if (cli->json) {
        json_t *doc = t->err.code ? json_from_err(&t->err) : json_object();

        json_object_set_new(doc, "name", json_string(t->name));
        json_object_set_new(doc, "ok", json_boolean(!t->err.code));
        if (t->answer)
            json_object_update_missing(doc, t->answer);
        json_array_append_new(list, doc);
    } else if (t->err.code) {
        output_error(&t->err, false);
    } else {
        printf("%s: %s\n", t->name, m->done);
    }
    json_decref(t->answer);
    err_done(&t->err);
    return status;
}

/* Checks all names before the first request. A repeated name counts once. */
static int many_collect(const struct cli_args *args, struct task *tasks, size_t *ret_n,
                        struct err *err)
{
    size_t n = 0;

    for (int i = 0; i < args->n_words; i++) {
        bool twice = false;
        int r = parse_name("sandbox name", args->words[i], err);

        if (r < 0)
            return r;
        for (size_t k = 0; k < n; k++)
            twice |= STREQ(tasks[k].name, args->words[i]);
        if (!twice)
            tasks[n++].name = args->words[i];
    }
    *ret_n = n;
    return 0;
}

int many_run(struct cli *cli, const struct cli_args *args, const struct many *m, struct err *err)
{
    _cleanup_free_ struct task *tasks = xcalloc((size_t)args->n_words, sizeof(*tasks));
    _cleanup_json_ json_t *list = json_array();
    struct client *c;
    size_t n = 0;
    int r, worst = 0;

    if ((r = many_collect(args, tasks, &n, err)) < 0 || (r = cli_client(cli, &c, err)) < 0 ||
        (r = client_connect(c, err)) < 0)
        return r;
    for (size_t i = 0, sent = 0; i < n; i++) {
        for (; sent < MIN(n, i + MANY_AHEAD); sent++)
            many_send_one(cli, m, &tasks[sent]);
        many_receive_one(m, &tasks[i]);
        r = many_report(cli, m, &tasks[i], list);
        worst = MAX(worst, r);
    }
    if (cli->json) {
        _cleanup_json_ json_t *doc = json_pack("{s:O}", "results", list);

        output_json(doc);
    }
    return worst;
}
