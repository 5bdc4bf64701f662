/*
 * The Engine API client as a program, for tests on real engines. Prints one JSON object per line.
 *
 *   docker-call HOST METHOD PATH [BODY]     a call; HOST "" finds the engine as the daemon does
 *   docker-call HOST upload METHOD PATH     the body comes from stdin
 *   docker-call HOST hijack PATH BODY       sends stdin, and writes the raw response to stdout
 *   docker-call HOST events LABEL           events of containers with that label, until stdin is
 *                                           readable
 *   docker-call HOST open                   the negotiated version
 *
 * DOCKER_CALL_SECONDS is the deadline of each step (default 60).
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dockerapi/docker.h"
#include "dockerapi/events.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

static struct deadline soon(void)
{
    const char *seconds = getenv("DOCKER_CALL_SECONDS");

    return deadline_in((uint64_t)((seconds ? strtod(seconds, NULL) : 60) * USEC_PER_SEC));
}

static void print(json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, true);

    puts(text);
    fflush(stdout);
    json_decref(doc);
}

static int print_result(int r, const struct docker_reply *reply, const struct err *err)
{
    json_t *doc = json_pack("{s:b, s:i, s:s}", "ok", r >= 0, "status", reply->status, "reason",
                            docker_reason_name(reply->reason));

    if (r < 0) {
        json_object_set_new(doc, "code", json_string(err_code_name(err->code)));
        json_object_set_new(doc, "message", json_string(err->msg));
        json_object_set_new(doc, "hint", err->hint ? json_string(err->hint) : json_null());
    } else if (reply->json) {
        json_object_set(doc, "json", reply->json);
    }
    print(doc);
    return r < 0;
}

static int open_engine(const char *host, struct docker **ret, struct err *err)
{
    _cleanup_endpoint_ struct docker_endpoint e = {0};
    struct deadline by = soon();
    int r;

    r = docker_endpoint_find(host, (docker_env_fn)getenv, &e, err);
    return r < 0 ? r : docker_open(&e, &by, ret, err);
}

static int do_open(const struct docker *d)
{
    print(json_pack("{s:b, s:s, s:s, s:s, s:i, s:i}", "ok", true, "flavour",
                    docker_flavour_name(d->flavour), "version", d->version, "where", d->where,
                    "api", (int)d->api, "engine_api", (int)d->engine_api));
    return 0;
}

static int do_call(const struct docker *d, char **argv)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_json_ json_t *body = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = soon();
    int r = 0;

    if (argv[2])
        r = json_parse("BODY", argv[2], strlen(argv[2]), &body, &err);
    if (r >= 0)
        r = docker_call(d, argv[0], argv[1], body, &by, &reply, &err);
    return print_result(r, &reply, &err);
}

static int do_upload(const struct docker *d, char **argv)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err err = ERR_INIT;
    struct docker_source source = {.fd = STDIN_FILENO};
    struct deadline by = soon();
    int r = docker_upload(d, argv[0], argv[1], &source, &by, &reply, &err);

    return print_result(r, &reply, &err);
}

/* One direction; false at its end. */
static bool pass_on(int from, int to)
{
    char piece[4096];
    ssize_t n = read(from, piece, sizeof(piece));

    return n > 0 && fd_write_all(to, piece, (size_t)n) >= 0;
}

static void splice_streams(int fd)
{
    struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};

    while (poll(p, ARRAY_SIZE(p), -1) > 0) {
        if (p[1].revents && !pass_on(STDIN_FILENO, fd)) {
            shutdown(fd, SHUT_WR);
            p[1].fd = -1;
        }
        if (p[0].revents && !pass_on(fd, STDOUT_FILENO))
            return;
    }
}

static int do_hijack(const struct docker *d, char **argv)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    struct docker_hijacked h = {.fd = -1};
    _cleanup_json_ json_t *body = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = soon();
    int r = json_parse("BODY", argv[1], strlen(argv[1]), &body, &err);

    if (r >= 0)
        r = docker_hijack(d, argv[0], body, &by, &h, &reply, &err);
    if (r < 0)
        return print_result(r, &reply, &err);
    fd_write_all(STDOUT_FILENO, buf_data(&h.early), h.early.len);
    buf_done(&h.early);
    splice_streams(h.fd);
    fd_close(h.fd);
    _exit(0); /* a thread of TLS may still be ending: what it holds now is not a leak */
}

static int do_events(const struct docker *d, char **argv)
{
    _cleanup_(docker_events_closep) struct docker_events *ev = NULL;
    _cleanup_json_ json_t *filters = docker_events_filters(argv[0]);
    _cleanup_err_ struct err err = ERR_INIT;
    struct docker_reply none = DOCKER_REPLY_INIT;
    struct deadline by = soon();
    struct docker_event e;
    int r = docker_events_open(d, filters, STDIN_FILENO, &by, &ev, &err);

    if (r >= 0)
        print(json_pack("{s:b}", "listening", true));
    while (r >= 0 && (r = docker_events_next(ev, &e, &err)) > 0) {
        print(json_pack("{s:i, s:i, s:s, s:s, s:i, s:I}", "type", e.type, "action", e.action, "id",
                        e.id, "name", e.name, "exit_code", e.exit_code, "time",
                        (json_int_t)e.time));
        docker_event_done(&e);
    }
    return print_result(r, &none, &err);
}

int main(int argc, char **argv)
{
    _cleanup_(docker_closep) struct docker *d = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct docker_reply none = DOCKER_REPLY_INIT;
    int r;

    if (argc < 3)
        return 2;
    r = open_engine(argv[1], &d, &err);
    if (r < 0)
        return print_result(r, &none, &err);
    if (STREQ(argv[2], "open"))
        return do_open(d);
    if (STREQ(argv[2], "upload") && argc == 5)
        return do_upload(d, argv + 3);
    if (STREQ(argv[2], "hijack") && argc == 5)
        return do_hijack(d, argv + 3);
    if (STREQ(argv[2], "events") && argc == 4)
        return do_events(d, argv + 3);
    return argc < 4 ? 2 : do_call(d, argv + 2);
}
