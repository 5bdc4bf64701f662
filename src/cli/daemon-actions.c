/*
 * A unit of systemd that owns the daemon is stopped and restarted by systemctl, so that systemd
 * knows (docs/decisions/035-systemd.md). Any other daemon gets SIGTERM. Sandboxes continue in both
 * cases.
 */
#include "cli/daemon-actions.h"

#include <string.h>

#include "cli/help.h"
#include "cli/output.h"
#include "client/running.h"
#include "client/unit.h"
#include "lib/base/strv.h"
#include "proto/service.h"

enum { DAEMON_NOT_RUNNING = 3 }; /* exit status of status, as of systemctl */
static const uint64_t action_usec = 60 * USEC_PER_SEC;

struct daemon_state {
    struct client *client; /* borrowed from the cli */
    bool runs;
    struct running process; /* valid when it runs, and not over TCP */
    json_t *version;        /* owned; NULL when it does not run */
    struct unit_info unit;
    struct deadline by;
};

static void daemon_state_done(struct daemon_state *s)
{
    running_done(&s->process);
    json_decref(s->version);
}
#define _cleanup_daemon_state_ __attribute__((cleanup(daemon_state_done)))

static int daemon_identify(struct daemon_state *s, struct cli *cli, struct err *err)
{
    int r = s->client->remote ? 0 : running_find(s->client->http.fd, &s->process, err);

    if (r < 0)
        return r;
    r = cli_call(cli, "GET", "/v1/version", NULL, &s->version, err);
    if (r < 0)
        return r;
    /* The answer came after the pidfd was opened, so the pidfd is the daemon's. */
    if (!s->client->remote && json_number_of(s->version, "pid") != (uint64_t)s->process.pid) {
        err_set(err, ERR_CONFLICT, "the daemon was replaced by another one meanwhile");
        return err_hint(err, "Run the command again.");
    }
    s->runs = true;
    return 0;
}

/* Never starts a daemon. */
static int daemon_look(struct daemon_state *s, struct cli *cli, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    cli->no_start = true;
    r = cli_client(cli, &s->client, err);
    if (r < 0)
        return r;
    if (!s->client->remote)
        s->unit = unit_look(&s->client->paths, &s->by);
    r = client_connect(s->client, &why);
    if (r < 0)
        return why.code == ERR_ENGINE && !s->client->remote ? 0 : err_move(err, &why);
    return daemon_identify(s, cli, err);
}

/* ---- status ---- */

static const char *daemon_unit_word(const struct unit_info *u)
{
    return u->active ? "active" : u->stopped ? "stopped" : "inactive";
}

static int daemon_status(struct cli *cli, struct daemon_state *s, struct err *err)
{
    const char *listen = json_text_of(s->version, "listen");
    _cleanup_json_ json_t *doc = NULL;

    (void)err;
    if (cli->json) {
        doc = json_pack("{s:b, s:o}", "running", s->runs, "unit", json_null());
        if (s->version)
            json_object_update(doc, s->version);
        if (s->unit.owns)
            json_object_set_new(
                doc, "unit",
                json_pack("{s:s, s:s}", "name", SERVICE_UNIT, "state", daemon_unit_word(&s->unit)));
        output_json(doc);
        return s->runs ? 0 : DAEMON_NOT_RUNNING;
    }
    printf("state:   %s\n", s->runs ? "running" : "not running");
    if (s->runs) {
        printf("version: %s\n", json_text_of(s->version, "version"));
        printf("pid:     %llu\n", (unsigned long long)json_number_of(s->version, "pid"));
        printf("socket:  %s/" SERVICE_SOCKET "\n", json_text_of(s->version, "run_dir"));
        printf("listens: %s\n", listen ? listen : "-");
    }
    if (s->unit.owns)
        printf("unit:    " SERVICE_UNIT ", %s\n", daemon_unit_word(&s->unit));
    return s->runs ? 0 : DAEMON_NOT_RUNNING;
}

/* ---- stop and restart ---- */

static int daemon_answer(struct cli *cli, const char *done, const char *text)
{
    _cleanup_json_ json_t *doc = json_pack("{s:b}", done, 1);

    if (cli->json)
        output_json(doc);
    else
        puts(text);
    return 0;
}

/* Ends a daemon that systemctl does not know: without the unit, or from before its installation. */
static int daemon_end(struct daemon_state *s, struct err *err)
{
    int r = s->runs ? running_end(&s->process, &s->by, err) : 0;

    client_disconnect(s->client);
    return r;
}

static int daemon_stop(struct cli *cli, struct daemon_state *s, struct err *err)
{
    int r = 0;

    if (!s->runs && !s->unit.active)
        return daemon_answer(cli, "stopped", "the daemon does not run");
    if (s->unit.active)
        r = unit_run("stop", &s->by, err);
    if (r >= 0)
        r = daemon_end(s, err);
    if (r < 0)
        return r;
    if (!s->unit.active)
        return daemon_answer(
            cli, "stopped", "the daemon has ended; the next command that needs it starts it again");
    output_note(cli->json, "commands fail until you run `%s start ripcord`", unit_command());
    return daemon_answer(cli, "stopped", SERVICE_UNIT " is stopped");
}

static int daemon_restart(struct cli *cli, struct daemon_state *s, struct err *err)
{
    int r;

    if (!s->unit.owns && s->runs && running_has_options(&s->process)) {
        err_set(err, ERR_CONFLICT, "the daemon (pid %d) was started with options of its own",
                (int)s->process.pid);
        return err_hint(err, "Run 'ripcord daemon stop', then start it with its options again.");
    }
    r = s->unit.owns ? unit_run("restart", &s->by, err) : daemon_end(s, err);
    if (r < 0)
        return r;
    client_disconnect(s->client);
    s->client->no_start = false;
    r = client_connect(s->client, err);
    if (r < 0)
        return r;
    return daemon_answer(cli, "restarted",
                         s->unit.owns ? SERVICE_UNIT " is restarted" : "the daemon is restarted");
}

/* ---- the command ---- */

static const struct {
    const char *name;
    int (*run)(struct cli *cli, struct daemon_state *s, struct err *err);
} daemon_actions[] = {
    {"status", daemon_status},
    {"stop", daemon_stop},
    {"restart", daemon_restart},
};

bool daemon_is_action(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(daemon_actions); i++)
        if (STREQ(daemon_actions[i].name, word))
            return true;
    return false;
}

static int daemon_act(struct cli *cli, const char *name, struct err *err)
{
    _cleanup_daemon_state_ struct daemon_state s = {.process = RUNNING_INIT,
                                                    .by = deadline_in(action_usec)};
    int r = daemon_look(&s, cli, err);

    if (r < 0)
        return r;
    if (s.client->remote && !STREQ(name, "status")) {
        err_set(err, ERR_UNSUPPORTED, "--host: 'daemon %s' works only on the daemon's machine",
                name);
        return err_hint(err, "Run 'ripcord daemon %s' there.", name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(daemon_actions); i++)
        if (STREQ(daemon_actions[i].name, name))
            return daemon_actions[i].run(cli, &s, err);
    return 0;
}

int daemon_action(struct cli *cli, int n_words, char **words, struct err *err)
{
    /* The daemon's own options mean nothing here: only the global ones are known. */
    static const struct cli_command action = {.name = "daemon",
                                              .usage = "daemon status | stop | restart",
                                              .max_args = 1,
                                              .stop_after = -1};
    _cleanup_args_ struct cli_args args = CLI_ARGS_INIT;
    int r = args_parse(&action, n_words, words, &args, err);

    if (r < 0)
        return r;
    cli_take_globals(cli, &args);
    if (args_has(&args, "help")) {
        help_command(&cmd_daemon);
        return 0;
    }
    return daemon_act(cli, words[0], err);
}
