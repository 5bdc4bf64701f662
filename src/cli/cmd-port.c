/*
 * ripcord port: forwards a local port to a port in a sandbox. Each connection has its own process,
 * so that a slow connection does not block others and a failed one is one line on stderr.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/pump.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { PORT_BACKLOG = 128, PORT_CONNECTIONS_MAX = 512 };

struct forward {
    const char *name;
    uint32_t port, local;
};

static int connect_inside(struct cli *cli, const struct forward *f, int in, int out,
                          struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/ports/%u", f->name, f->port);
    _cleanup_buf_ struct buf early = BUF_INIT(PUMP_SIZE);
    _cleanup_close_ int sock = -1;
    struct client *c;
    int r = cli_client(cli, &c, err);

    if (r < 0)
        return r;
    r = client_upgrade(c, "GET", target, "tcp", NULL, &sock, &early, err);
    if (r < 0)
        return r;
    pump(in, out, sock, &early);
    return 0;
}

static int listen_local(const struct forward *f, int *ret, uint16_t *ret_port, struct err *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)f->local),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(at);
    int on = 1;

    if (fd < 0)
        return err_sys(err, errno, "make a socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, PORT_BACKLOG) < 0) {
        enum err_code code = errno == EADDRINUSE ? ERR_CONFLICT
                             : errno == EACCES   ? ERR_DENIED
                                                 : ERR_SYSTEM;

        err_set(err, code, "listen on 127.0.0.1:%u: %s", f->local, strerror(errno));
        return err_hint(err, "Leave out LOCALPORT to use any free port.");
    }
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return err_sys(err, errno, "find the local port");
    *ret_port = ntohs(at.sin_port);
    *ret = TAKE_FD(fd);
    return 0;
}

_noreturn_ static void serve(struct cli *cli, const struct forward *f, int fd)
{
    _cleanup_err_ struct err err = ERR_INIT;

    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (connect_inside(cli, f, fd, fd, &err) < 0)
        output_error(&err, cli->json);
    _exit(err.code != ERR_NONE);
}

static int accept_all(struct cli *cli, const struct forward *f, int listener, struct err *err)
{
    unsigned live = 0;

    for (;;) {
        _cleanup_close_ int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        pid_t pid;

        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return err_sys(err, errno, "accept a connection");
        /* Reap ended children. Wait for one when the maximum is reached. */
        while (live && waitpid(-1, NULL, live >= PORT_CONNECTIONS_MAX ? 0 : WNOHANG) > 0)
            live--;
        if (fd < 0)
            continue;
        pid = fork();
        if (pid == 0) {
            close(listener);
            serve(cli, f, fd);
        }
        if (pid < 0)
            output_note(cli->json, "connection refused: %s", strerror(errno));
        else
            live++;
    }
}

static void print_address(const struct cli *cli, const struct forward *f, uint16_t local)
{
    _cleanup_json_ json_t *doc = NULL;

    if (cli->json) {
        doc = json_pack("{s:s, s:i, s:s, s:i}", "sandbox", f->name, "port", (int)f->port, "address",
                        "127.0.0.1", "local_port", (int)local);
        output_json(doc);
    } else {
        printf("port %u of %s is at 127.0.0.1:%u\n", f->port, f->name, local);
    }
    fflush(stdout);
}

static int parse(const struct cli_args *args, struct forward *ret, struct err *err)
{
    int r;

    ret->name = args->words[0];
    r = parse_name("sandbox name", ret->name, err);
    if (r < 0)
        return r;
    if (parse_u32(args->words[1], 1, UINT16_MAX, &ret->port, err) < 0)
        return err_wrap(err, "PORT");
    if (args->n_words > 2 && parse_u32(args->words[2], 0, UINT16_MAX, &ret->local, err) < 0)
        return err_wrap(err, "LOCALPORT");
    if (args->n_words > 2 && args_has(args, "stdio"))
        return err_set(err, ERR_INVALID, "LOCALPORT cannot be combined with --stdio");
    if (args_has(args, "url") && (args->n_words > 2 || args_has(args, "stdio")))
        return err_set(err, ERR_INVALID, "--url cannot be combined with LOCALPORT or --stdio");
    if (!args_has(args, "url") && (args_has(args, "wake") || args_has(args, "for")))
        return err_set(err, ERR_INVALID, "--wake and --for need --url");
    return 0;
}

/* --url: a link for a browser. */
static int print_link(struct cli *cli, const struct cli_args *args, const struct forward *f,
                      struct err *err)
{
    _cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/links", f->name);
    _cleanup_json_ json_t *body =
        json_pack("{s:i, s:b}", "port", (int)f->port, "wake", (int)args_has(args, "wake"));
    _cleanup_json_ json_t *answer = NULL;
    const char *life = args_get(args, "for");
    uint64_t usec;
    int r;

    if (life && parse_duration(life, &usec, err) < 0)
        return err_wrap(err, "--for");
    if (life)
        json_object_set_new(body, "life_ms", json_integer((json_int_t)(usec / USEC_PER_MSEC)));
    r = cli_call(cli, "POST", target, body, &answer, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(answer);
    else
        printf("%s\n", json_string_value(json_object_get(json_object_get(answer, "link"), "url")));
    return 0;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_close_ int listener = -1;
    struct forward f = {0};
    uint16_t local = 0;
    int r = parse(args, &f, err);

    if (r < 0)
        return r;
    if (args_has(args, "url"))
        return print_link(cli, args, &f, err);
    if (args_has(args, "stdio"))
        return connect_inside(cli, &f, STDIN_FILENO, STDOUT_FILENO, err);
    /* Report an unknown sandbox now, not with the first connection. */
    target = xasprintf("/v1/sandboxes/%s", f.name);
    r = cli_call(cli, "GET", target, NULL, NULL, err);
    if (r < 0)
        return r;
    r = listen_local(&f, &listener, &local, err);
    if (r < 0)
        return r;
    client_disconnect(&cli->client); /* each child connects on its own */
    print_address(cli, &f, local);
    return accept_all(cli, &f, listener, err);
}

static const struct cli_option options[] = {
    {"stdio", 0, NULL, "carry one connection over standard input and output", NULL},
    {"url", 0, NULL, "print a link that opens the port in a browser", NULL},
    {"wake", 0, NULL, "with --url: requests start the sandbox if it is stopped", NULL},
    {"for", 0, "TIME", "with --url: how long the link works (12h; at most 7d)", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_port = {
    .name = "port",
    .summary = "forward a local port to a port in a sandbox",
    .usage = "port NAME PORT [LOCALPORT] [options]",
    .details =
        "Listens on 127.0.0.1:LOCALPORT and forwards each connection to PORT in the sandbox. "
        "This also works for a sandbox without a network. Without LOCALPORT, a free port is "
        "used; the first line of output names it. Every TCP protocol works, for example HTTP, "
        "WebSocket or a database. The command runs until it is interrupted. The first connection "
        "starts a stopped sandbox.\n\n"
        "While the command runs, every user who can connect to 127.0.0.1 on this machine can use "
        "the port.\n\n"
        "With --url, it prints a link instead. The link opens the port in a browser, as a web "
        "origin of its own (http://PORT-ID.localhost). Who has the link can use the port until the "
        "link expires or the API token changes. The daemon must listen on TCP (http.listen).",
    .examples =
        "ripcord port box 8000\tuse any free local port\n"
        "ripcord port box 8000 8080\topen http://127.0.0.1:8080\n"
        "ripcord port box 8000 --url\tprint a link for a browser\n"
        "ssh -o ProxyCommand='ripcord port box 22 --stdio' agent@box\tuse it as an ssh proxy "
        "command",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 2,
    .max_args = 3,
    .stop_after = -1,
    .run = run,
};
