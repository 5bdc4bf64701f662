/* ripcord wait: waits for the end of an exec, or for a state of a sandbox. */
#include <string.h>

#include "cli/cli.h"
#include "cli/end.h"
#include "cli/names.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

/* One request waits this long; then the deadline is checked and the wait is sent again. */
enum { STEP_MS = 30000, STATE_MAX = 32 };

struct waiting {
    struct cli *cli;
    const char *name;    /* of the sandbox; borrowed */
    const char *timeout; /* as the user wrote it, or NULL */
    struct deadline by;
    struct client events; /* the sandbox's events: each is a reason to look again */
    bool listening;
    char state[STATE_MAX]; /* of the last look */
};

static uint64_t step_ms(const struct waiting *w)
{
    int left = deadline_ms(&w->by);

    return left < 0 ? STEP_MS : MIN((uint64_t)left, (uint64_t)STEP_MS);
}

/* ---- the end of an exec ---- */

static void show_end(const struct waiting *w, const json_t *doc)
{
    const json_t *end = json_object_get(json_object_get(doc, "exec"), "end");
    _cleanup_free_ char *words = NULL;

    if (w->cli->json) {
        output_json(doc);
        return;
    }
    words = end_words(end, 0, 0);
    if (words)
        output_note(false, "%s", words);
    if (words && json_text_of(end, "hint"))
        output_hint(false, json_text_of(end, "hint"));
}

static int wait_for_end(struct waiting *w, const char *id, struct err *err)
{
    _cleanup_json_ json_t *found = NULL;
    int r = exec_lookup(w->cli, w->name, id, &found, err);

    if (r < 0)
        return r;
    id = json_text_of(found, "id"); /* 'last' may become another one */
    w->cli->client.on_slow = NULL;  /* a slow answer is what the user wants here */
    for (;;) {
        _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/execs/%s?wait=%llums", w->name,
                                                id, (unsigned long long)step_ms(w));
        _cleanup_json_ json_t *doc = NULL;
        const json_t *exec;

        r = cli_call(w->cli, "GET", target, NULL, &doc, err);
        if (r < 0)
            return r;
        exec = json_object_get(doc, "exec");
        if (json_is_object(json_object_get(exec, "end"))) {
            show_end(w, doc);
            return end_status(json_object_get(exec, "end"));
        }
        if (deadline_passed(&w->by))
            return err_set(err, ERR_TIMEOUT, "exec '%s' of sandbox '%s' has not ended after %s", id,
                           w->name, w->timeout);
    }
}

/* ---- a state of a sandbox ---- */

static const char *const state_names[] = {"running",  "paused",   "stopped", "failed",
                                          "creating", "stopping", "removed"};

/* Whether this state ends the wait. */
static bool is_wanted(const struct cli_args *args, const char *state)
{
    const char *v;

    if (!args_has(args, "state"))
        return STREQ(state, "stopped") || STREQ(state, "failed");
    for (size_t i = 0; (v = args_next(args, "state", &i));)
        if (STREQ(v, state))
            return true;
    return false;
}

static int on_removed(struct waiting *w, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;

    if (err->code != ERR_NOT_FOUND || !is_wanted(args, "removed"))
        return -(int)err->code;
    err_done(err);
    doc = json_pack("{s:b}", "removed", 1);
    if (w->cli->json)
        output_json(doc);
    return 1;
}

/* Returns 1 when the sandbox is in a wanted state, 0 when not yet. */
static int look(struct waiting *w, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s", w->name);
    _cleanup_json_ json_t *doc = NULL;
    const json_t *sandbox;
    const char *state, *reason;
    int r = cli_call(w->cli, "GET", target, NULL, &doc, err);

    if (r < 0)
        return on_removed(w, args, err);
    sandbox = json_object_get(doc, "sandbox");
    state = json_text_of(sandbox, "state");
    snprintf(w->state, sizeof(w->state), "%s", state ? state : "unknown");
    if (is_wanted(args, w->state)) {
        if (w->cli->json)
            output_json(doc);
        return 1;
    }
    if (!STREQ(w->state, "failed"))
        return 0;
    reason = json_text_of(sandbox, "reason");
    return err_set(err, ERR_CONFLICT, "sandbox '%s' has failed (%s)", w->name,
                   reason ? reason : "no reason is known");
}

/*
 * Waits for an event of the sandbox. The first call only begins to listen, so that no change
 * between a look and the wait is missed. A lost connection is made again by the next call.
 */
static int await_event(struct waiting *w, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    char piece[4096];
    ssize_t n;

    if (!w->listening) {
        _cleanup_free_ char *target = xasprintf("/v1/events?follow=1&sandbox=%s", w->name);
        int r = client_ask(&w->events, "GET", target, NULL, err);

        w->listening = r >= 0;
        return r;
    }
    n = client_read_for(&w->events, piece, sizeof(piece), step_ms(w) * USEC_PER_MSEC, &why);
    if (n > 0 || n == -ERR_TIMEOUT)
        return 0;
    client_disconnect(&w->events);
    w->listening = false;
    return 0;
}

static int wait_for_state(struct waiting *w, const struct cli_args *args, struct err *err)
{
    for (;;) {
        int r = look(w, args, err);

        if (r != 0)
            return MIN(r, 0);
        if (deadline_passed(&w->by))
            return err_set(err, ERR_TIMEOUT, "sandbox '%s' is still %s after %s", w->name, w->state,
                           w->timeout);
        r = await_event(w, err);
        if (r < 0)
            return r;
    }
}

static int run_state(struct waiting *w, const struct cli_args *args, struct err *err)
{
    struct client *c;
    int r;

    w->cli->own_status = true;
    if ((r = parse_name("sandbox name", w->name, err)) < 0 ||
        (r = args_check_words(args, "state", state_names, ARRAY_SIZE(state_names), err)) < 0 ||
        (r = cli_client(w->cli, &c, err)) < 0)
        return r;
    client_init_like(&w->events, c);
    r = wait_for_state(w, args, err);
    client_done(&w->events);
    return r;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    struct waiting w = {.cli = cli,
                        .name = args->words[0],
                        .timeout = args_get(args, "timeout"),
                        .by = {DEADLINE_NEVER}};
    uint64_t timeout_ms = 0;
    int r = args_duration_ms(args, "timeout", SPEC_TIMEOUT_MAX_MS, &timeout_ms, err);

    if (r < 0)
        return r;
    if (timeout_ms)
        w.by = deadline_in(timeout_ms * USEC_PER_MSEC);
    if (args->n_words == 1)
        return run_state(&w, args, err);
    if (args_has(args, "state")) {
        err_set(err, ERR_INVALID, "--state cannot be combined with EXEC");
        return err_hint(err, "Leave out --state to wait for the end of the exec.");
    }
    return wait_for_end(&w, args->words[1], err);
}

static const struct cli_option options[] = {
    {"state", 0, "STATE",
     "wait until the sandbox is in this state (default: stopped or failed); may be repeated: in "
     "any of them; 'removed': until it does not exist any more",
     "running paused stopped failed creating stopping removed"},
    {"timeout", 0, "DURATION", "fail if it takes longer than this, e.g. 5m (default: no limit)",
     NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_wait = {
    .name = "wait",
    .summary = "wait for the end of an exec, or for a state of a sandbox",
    .usage = "wait NAME [EXEC] [options]",
    .details =
        "With EXEC (an id or 'last'), waits until that exec has ended. The exit status is the "
        "command's, as with 'ripcord exec'; 125 means that ripcord failed or that the time is "
        "over. The exec continues if this program ends.\n\n"
        "Without EXEC, waits until the sandbox NAME is stopped or has failed, or is in a state "
        "given with --state. The exit status is 0, or 9 when the time is over. If the sandbox "
        "fails or is removed before, the wait ends with an error.\n\n"
        "Nothing is printed on success. With --json, the exec or the sandbox is printed.",
    .examples = "id=$(ripcord exec box -d -- make); ripcord wait box $id\twait for a command that "
                "runs in the background\n"
                "ripcord wait box last --timeout 5m\twait at most five minutes\n"
                "ripcord wait box --state running --timeout 30s\twait until a sandbox runs",
    .groups = groups,
    .complete = "sandbox exec",
    .min_args = 1,
    .max_args = 2,
    .stop_after = -1,
    .flags = CLI_RUNS_COMMAND,
    .run = run,
};
