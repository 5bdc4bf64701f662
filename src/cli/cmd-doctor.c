/* ripcord doctor: asks the daemon to try what works here, and shows its report. Without a daemon,
 * the report says why there is none. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* Escaped, except ends of lines: the reason why a daemon did not start is a part of its log. */
static void print_lines(const char *text)
{
    _cleanup_free_ char *copy = text ? xstrdup(text) : NULL;
    char *rest = copy, *line;

    for (bool first = true; (line = strsep(&rest, "\n")); first = false) {
        fputs(first ? "" : "\n      ", stdout);
        output_text(stdout, line);
    }
    putchar('\n');
}

static void print_check(const json_t *check)
{
    const char *status = json_text_of(check, "status"), *fix = json_text_of(check, "fix");
    bool ok = status && STREQ(status, "ok"), warn = status && STREQ(status, "warn");

    printf("%s%-4s%s  ",
           output_color(stdout, ok     ? COLOR_GREEN
                                : warn ? COLOR_YELLOW
                                       : COLOR_RED),
           ok     ? "ok"
           : warn ? "warn"
                  : "fail",
           output_color(stdout, COLOR_NONE));
    output_text(stdout, json_text_of(check, "name"));
    fputs(": ", stdout);
    print_lines(json_text_of(check, "detail"));
    if (fix && *fix && !ok) {
        fputs("      fix: ", stdout);
        output_text(stdout, fix);
        putchar('\n');
    }
}

/* {"folder"}: the daemon tries to mount it. */
static json_t *make_request(void)
{
    _cleanup_free_ char *folder = getcwd(NULL, 0);
    json_t *path = folder && *folder == '/' ? json_string(folder) : NULL;

    return path ? json_pack("{s:o}", "folder", path) : json_object();
}

/* The report of a machine on which no daemon can run. The last line of the daemon's log is its
 * error, with the hint behind two dashes. */
static json_t *report_no_daemon(const struct err *err)
{
    _cleanup_free_ char *msg = xstrdup(err->msg);
    char *line = strrchr(msg, '\n'), *fix = strstr(line ? line : msg, " -- ");
    json_t *text;

    if (fix) {
        *fix = '\0';
        fix += strlen(" -- ");
    }
    text = json_string(msg);
    return json_pack("{s:b, s:[{s:s, s:s, s:o, s:s?}]}", "ok", 0, "checks", "name", "daemon",
                     "status", "fail", "detail", text ? text : json_string("(not valid UTF-8)"),
                     "fix", fix ? fix : err->hint);
}

static int ask(struct cli *cli, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *body = make_request();
    _cleanup_err_ struct err why = ERR_INIT;
    struct client *c;
    int r = cli_client(cli, &c, err);

    if (r < 0)
        return r;
    r = client_connect(c, &why);
    if (r < 0) {
        *ret = report_no_daemon(&why);
        return 0;
    }
    r = client_call(c, "POST", "/v1/doctor", body, ret, err);
    return r == -ERR_NOT_FOUND
               ? err_hint(err, "The running daemon is older than this program. Restart it.")
               : r;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *check;
    bool failed = false;
    size_t i;
    int r;

    (void)args;
    r = ask(cli, &doc, err);
    if (r < 0)
        return r;
    json_array_foreach (json_object_get(doc, "checks"), i, check) {
        const char *status = json_text_of(check, "status");

        failed |= !status || STREQ(status, "fail");
        if (!cli->json)
            print_check(check);
    }
    if (cli->json)
        output_json(doc);
    return failed ? err_code_exit(ERR_UNSUPPORTED) : 0;
}

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .summary = "check this machine and show how to fix problems",
    .usage = "doctor",
    .details =
        "Starts throw-away sandboxes where the daemon starts them, one for each feature: plain, "
        "with limits, networks, a disk, and a mount of the working folder. What a command would "
        "fail with is shown with the step that helps. The exit status is 7 if a check fails; a "
        "warning is about a feature that is not available here.",
    .stop_after = -1,
    .run = run,
};
