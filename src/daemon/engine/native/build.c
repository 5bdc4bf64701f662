/*
 * Builds on the native engine. The program ripcord-build does the work in a process of its own,
 * because it parses files of others. This file starts it, gives connections to its processes
 * (build-serve.h), and waits for its result. A cancelled build is killed. Whatever the end, its
 * temporary folder is deleted.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "daemon/engine/engine-check.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/build-serve.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/program.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/xalloc.h"

enum { NAME_LEN = 32, CONTEXT_FD = 3, CONTROL_FD = 4 };

#define SILENCE_TIMEOUT (5 * USEC_PER_SEC)

struct native_builder {
    struct native_engine *n;
    const struct build_request *req;
    struct build *b;
    const struct deadline *by;
    char name[NAME_LEN]; /* name of its folder */
    struct program process;
    int control; /* the other end is its CONTROL_FD */
    struct build_serve *serve;
};

/* ---- the process ---- */

static int native_build_make_request(const struct native_builder *x, int *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = json_object();
    _cleanup_free_ char *text = NULL, *line = NULL;

    json_object_set_new(doc, "dockerfile", json_string(x->req->dockerfile));
    json_object_set_new(doc, "tags", json_from_strv(x->req->tags));
    json_object_set_new(doc, "args", json_from_strv(x->req->args));
    json_object_set_new(doc, "agents", json_from_strv(x->req->agents));
    json_object_set_new(doc, "no_cache", json_boolean(x->req->no_cache));
    json_object_set_new(doc, "pull", json_boolean(x->req->pull));
    json_object_set_new(doc, "thin", json_boolean(x->req->digest_only));
    json_object_set_new(doc, "host", json_string(native_host_generation(x->n)));
    if (x->req->network)
        json_object_set_new(doc, "network", json_string(x->req->network));
    if (x->req->target)
        json_object_set_new(doc, "target", json_string(x->req->target));
    text = json_to_text(doc, false);
    line = xasprintf("%s\n", text);
    return memfd_sealed("request", line, strlen(line), ret, err);
}

static int native_build_start(struct native_builder *x, struct err *err)
{
    _cleanup_free_ char *store = native_store_path(x->n), *ids = native_store_ids(x->n);
    const char *const argv[] = {"ripcord-build", store, ids, x->name, NULL};
    _cleanup_close_ int request = -1, theirs = -1;
    int ends[2], r;

    r = native_build_make_request(x, &request, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, errno, "make a pair of sockets");
    x->control = ends[0];
    theirs = ends[1];
    x->serve = build_serve_new(&(struct native_task){x->n, x->req, x->b, x->by, -1});
    return program_start(x->n->libexec_dir, argv, NULL,
                         (const struct process_fd[]){{request, STDIN_FILENO},
                                                     {x->req->context, CONTEXT_FD},
                                                     {theirs, CONTROL_FD}},
                         3, &x->process, err);
}

/* Deletes its temporary folder, in the background. */
static void native_build_delete_folder(const struct native_builder *x)
{
    _cleanup_free_ char *store = native_store_path(x->n), *path = xasprintf("%s/tmp", store);
    _cleanup_close_ int tmp = -1;

    if (*x->name && dir_open(AT_FDCWD, path, &tmp, NULL) >= 0)
        delete_queue_add(x->n->delete_queue, tmp, x->name, NULL);
}

/* ---- connections ---- */

static int native_build_await_control(const struct native_builder *x, struct err *err)
{
    struct pollfd p[2] = {{.fd = x->control, .events = POLLIN},
                          {.fd = build_stop_fd(x->b), .events = POLLIN}};

    while (poll(p, 2, deadline_ms(x->by)) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "wait for ripcord-build");
    if (p[1].revents)
        return err_set(err, ERR_CONFLICT, "the build was cancelled");
    return p[0].revents ? 0 : err_set(err, ERR_TIMEOUT, "the build did not end in time");
}

/* Sends a connection for each byte, until all processes of the build have ended. */
static int native_build_connect_all(const struct native_builder *x, struct err *err)
{
    for (;;) {
        _cleanup_close_ int conn = -1;
        char byte;
        int r = native_build_await_control(x, err);

        if (r < 0)
            return r;
        if (read(x->control, &byte, 1) != 1)
            return 0;
        r = build_serve_open(x->serve, &conn, err);
        if (r < 0)
            return r;
        r = fd_send(x->control, "", 1, &conn, 1, 0);
        if (r < 0)
            return err_sys(err, -r, "send a connection to ripcord-build");
    }
}

/* ---- the whole build ---- */

static int native_build_check_request(const struct native_engine *n,
                                      const struct build_request *req, struct err *err)
{
    if (!n->ranges && !n->subids.uid) {
        err_set(err, ERR_UNSUPPORTED,
                "images cannot be built on this machine: no ids for the files' owners");
        return err_hint(err, "Set up subordinate ids: `ripcord doctor` shows the command.");
    }
    if (req->network && STREQ(req->network, "open") && !(n->engine.caps & ENGINE_CAP_NET_OPEN)) {
        err_set(err, ERR_UNSUPPORTED, "network 'open' is not available on this machine");
        return engine_check_lack(&n->engine, ENGINE_CAP_NET_OPEN, err);
    }
    if (req->platform && !STREQ(req->platform, NATIVE_PLATFORM)) {
        err_set(err, ERR_UNSUPPORTED, "the native engine does not build for '%.64s'",
                req->platform);
        return err_hint(err, "Leave the platform out: builds are for this machine, " NATIVE_PLATFORM
                             ".");
    }
    return 0;
}

static int native_build_make_name(struct native_builder *x, struct err *err)
{
    uint64_t n;

    if (getrandom(&n, sizeof(n), 0) != sizeof(n))
        return err_sys(err, errno, "name the build");
    snprintf(x->name, sizeof(x->name), "build-%016llx", (unsigned long long)n);
    return 0;
}

static int native_build_work(struct native_builder *x, char **ret, struct err *err)
{
    int r = native_build_check_request(x->n, x->req, err);

    if (r < 0)
        return r;
    r = native_build_make_name(x, err);
    if (r < 0)
        return r;
    r = native_build_start(x, err);
    if (r < 0)
        return r;
    r = native_build_connect_all(x, err);
    if (r < 0)
        return r;
    return program_answer(&x->process, x->by, ret, err);
}

/* The processes that build stages die with it, a moment later. */
static void native_build_await_stages(const struct native_builder *x)
{
    struct deadline by = deadline_in(SILENCE_TIMEOUT);
    struct pollfd p = {.fd = x->control}; /* for POLLHUP */

    while (x->control >= 0 && poll(&p, 1, deadline_ms(&by)) < 0 && errno == EINTR)
        ;
}

/* Nothing works in the folder any more when it is deleted. */
static int native_build_end(struct native_builder *x, struct err *err)
{
    int r;

    program_end(&x->process);
    native_build_await_stages(x);
    fd_close(x->control);
    r = build_serve_end(x->serve, err);
    native_build_delete_folder(x);
    return r;
}

int native_build(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err)
{
    struct native_builder x = {
        .n = native_of(e), .req = req, .b = b, .by = by, .control = -1, .process = PROGRAM_INIT};
    _cleanup_err_ struct err why = ERR_INIT, invalid = ERR_INIT;
    _cleanup_free_ char *answer = NULL;
    int r = native_build_work(&x, &answer, &why);

    /* An invalid message is the cause of the failure that ripcord-build reports. */
    if (native_build_end(&x, &invalid) < 0)
        return err_move(err, &invalid);
    if (r < 0)
        return err_move(err, &why);
    *ret = TAKE_PTR(answer);
    return 0;
}
