/* ripcord events: shows the event log. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/state.h"
#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { LINE_MAX_BYTES = 64 << 10 };
#define RESUME_FOR (10 * USEC_PER_SEC)
#define RESUME_PAUSE (100 * USEC_PER_MSEC)

struct events_listing {
    const struct cli_args *args;
    bool json, follow;
    bool began;                /* `since` is valid */
    bool broken;               /* a failure on our side; another daemon would not help */
    uint64_t since;            /* number of the last event */
    struct deadline resume_by; /* deadline for a reconnect */
    struct buf line;
};

/* Prints the data of an event, e.g. "reason idle". */
static void print_data(const json_t *data)
{
    const char *key, *sep = "  ";
    json_t *v;

    json_object_foreach ((json_t *)data, key, v) {
        _cleanup_free_ char *text =
            json_is_string(v) ? xstrdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY);

        printf("%s%s ", sep, key);
        output_text(stdout, text);
        sep = ", ";
    }
}

static void print_line(const json_t *e)
{
    const char *kind = json_text_of(e, "kind"), *sandbox = json_text_of(e, "sandbox");
    const char *dot = kind ? strchr(kind, '.') : NULL, *exec = json_text_of(e, "exec");

    printf("%6llu  ", (unsigned long long)json_number_of(e, "seq"));
    output_text(stdout, json_text_of(e, "time"));
    printf("  %s", output_color(stdout, dot ? state_color(dot + 1) : COLOR_YELLOW));
    output_text(stdout, kind);
    printf("%s  ", output_color(stdout, COLOR_NONE));
    if (sandbox)
        output_text(stdout, sandbox);
    if (exec) {
        putchar('/');
        output_text(stdout, exec);
    }
    print_data(json_object_get(e, "data"));
    putchar('\n');
}

static int on_line(struct events_listing *l, const char *line, size_t len, struct err *err)
{
    _cleanup_json_ json_t *e = NULL;
    int r = json_parse("an event", line, len, &e, err);

    if (r < 0)
        return r;
    l->since = json_number_of(e, "seq");
    l->began = true;
    if (l->json) {
        fwrite(line, 1, len, stdout);
        putchar('\n');
    } else {
        print_line(e);
    }
    return 0;
}

static int on_piece(struct events_listing *l, const char *data, size_t len, struct err *err)
{
    const char *start, *end;
    int r;

    if (buf_append(&l->line, data, len) < 0)
        return err_set(err, ERR_LIMIT, "an event is longer than %d bytes", LINE_MAX_BYTES);
    for (start = buf_data(&l->line); (end = strchr(start, '\n')); start = end + 1) {
        r = on_line(l, start, (size_t)(end - start), err);
        if (r < 0)
            return r;
    }
    buf_consume(&l->line, (size_t)(start - buf_data(&l->line)));
    if (fflush(stdout) != 0 || ferror(stdout))
        return err_sys(err, errno, "write to standard output");
    return 0;
}

static char *target_of(const struct events_listing *l)
{
    const char *sandbox = args_get(l->args, "sandbox"), *kind = args_get(l->args, "kind");
    _cleanup_free_ char *s = client_escape(sandbox ? sandbox : "");
    _cleanup_free_ char *k = client_escape(kind ? kind : "");
    char since[48] = "";

    if (l->began)
        snprintf(since, sizeof(since), "&since=%llu", (unsigned long long)l->since);
    return xasprintf("/v1/events?follow=%d%s%s%s%s%s", l->follow, since, sandbox ? "&sandbox=" : "",
                     s, kind ? "&kind=" : "", k);
}

static int list_once(struct client *c, struct events_listing *l, struct err *err)
{
    _cleanup_free_ char *target = target_of(l);
    char piece[16 << 10];
    ssize_t n;
    int r;

    buf_clear(&l->line);
    r = client_ask(c, "GET", target, NULL, err);
    if (r < 0)
        return r;
    l->resume_by = (struct deadline){DEADLINE_NEVER};
    while ((n = client_read(c, piece, sizeof(piece), err)) > 0) {
        r = on_piece(l, piece, (size_t)n, err);
        l->broken |= r < 0;
        if (r < 0)
            return r;
    }
    return (int)n;
}

/* With --follow, the listing continues after a restart of the daemon at the next event number. */
static int list(struct client *c, struct events_listing *l, struct err *err)
{
    for (;;) {
        int r = list_once(c, l, err);

        if (!l->follow || l->broken || (r < 0 && deadline_passed(&l->resume_by)))
            return r;
        if (l->resume_by.at == DEADLINE_NEVER)
            l->resume_by = deadline_in(RESUME_FOR);
        err_done(err);
        nanosleep(&(struct timespec){.tv_nsec = RESUME_PAUSE * 1000}, NULL);
    }
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    struct events_listing l = {.args = args,
                               .json = cli->json || !isatty(STDOUT_FILENO),
                               .follow = args_has(args, "follow"),
                               .began = args_has(args, "since"),
                               .line = BUF_INIT(LINE_MAX_BYTES + (64 << 10))};
    struct client *c;
    int r;

    r = args_u64(args, "since", 0, INT64_MAX, &l.since, err);
    if (r < 0)
        return r;
    r = cli_client(cli, &c, err);
    if (r < 0)
        return r;
    r = list(c, &l, err);
    buf_done(&l.line);
    return r;
}

static const struct cli_option options[] = {
    {"follow", 'f', NULL, "keep printing new events", NULL},
    {"since", 0, "N", "print events after number N; 0: all stored events", NULL},
    {"sandbox", 0, "NAME", "print only the events of this sandbox (name or id)", NULL},
    {"kind", 0, "KIND", "print only events of this kind, e.g. exec.ended, or of a group, e.g. exec",
     "sandbox exec daemon packages reconcile gap sandbox.running sandbox.stopped sandbox.failed "
     "sandbox.removed exec.started exec.ended"},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_events = {
    .name = "events",
    .summary = "show the event log",
    .usage = "events [options]",
    .details =
        "Prints the stored events, oldest first. With --follow it prints new events as they "
        "happen; with --follow and --since it first prints the stored events after number N. "
        "Each event is one line: readable text on a terminal, otherwise a JSON object.\n\n"
        "Events are numbered, and no number is used twice. Events can be missing for two "
        "reasons: the log has a maximum length (events.keep in ripcord.yaml(5)), and a crash "
        "loses the last events before it. An event of kind 'gap' stands for the missing ones. "
        "With --follow, the command continues after a restart of the daemon.",
    .examples =
        "ripcord events -f\twatch new events\n"
        "ripcord events --since 4711 --json\tprint the events that a program has not seen yet\n"
        "ripcord events --sandbox box --kind exec.ended\tshow how the commands of a sandbox ended",
    .groups = groups,
    .max_args = 0,
    .stop_after = -1,
    .run = run,
};
