#include "image/transfer/main.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "image/transfer/download.h"
#include "image/transfer/pull.h"
#include "image/transfer/push.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"
#include "proto/transfer.h"

static int transfer_read_settings(struct settings *ret, struct err *err)
{
    _cleanup_free_ char *text = xmalloc(TRANSFER_SETTINGS_MAX + 1);
    ssize_t n = fd_read_full(TRANSFER_FD_SETTINGS, text, TRANSFER_SETTINGS_MAX);
    int r;

    fd_close(TRANSFER_FD_SETTINGS);
    if (n < 0)
        return err_sys(err, (int)-n, "read the settings");
    r = settings_parse(text, (size_t)n, ret, err);
    explicit_bzero(text, (size_t)n);
    return r;
}

/* Another user, when told so; `folder` becomes that one's. */
static int transfer_become(const struct settings *s, int folder, struct err *err)
{
    if (!s->change_user) /* uid 0 of a user namespace has capabilities, too */
        return caps_set(CAPS_NONE, err);
    if (folder >= 0 && fchown(folder, s->uid, s->uid) < 0)
        return err_sys(err, errno, "give the folder of downloads to user %u", s->uid);
    return caps_become(s->uid, s->uid, err);
}

/* What libraries load on first use they must load now: afterwards the filter may not let them. */
static void transfer_warm_up(void)
{
    struct addrinfo *found = NULL;

    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
}

static int transfer_transfer_run_pull(const struct settings *s, json_t **ret, struct err *err)
{
    const struct pull_fds fds = {TRANSFER_FD_ARCHIVE, TRANSFER_FD_EVENTS, TRANSFER_FD_FOLDER};

    *ret = json_object();
    return pull_run(s, &fds, err);
}

static int transfer_transfer_run_push(const struct settings *s, json_t **ret, struct err *err)
{
    return push_run(s, TRANSFER_FD_ARCHIVE, TRANSFER_FD_EVENTS, ret, err);
}

static int transfer_run_fetch(const struct settings *s, json_t **ret, struct err *err)
{
    return download_run(s, TRANSFER_FD_ARCHIVE, TRANSFER_FD_EVENTS, ret, err);
}

/*
 * A server that keeps us waiting must not keep those who have given up: whoever reads the events is
 * who wants the result. Nothing is lost by ending anywhere, as what was begun is gone on with.
 */
static void *transfer_watch_reader(void *arg _unused_)
{
    struct pollfd p = {.fd = TRANSFER_FD_EVENTS};

    for (;;)
        if (poll(&p, 1, -1) > 0 && p.revents)
            _exit(1);
}

static int transfer_start_watch(struct err *err)
{
    pthread_t thread;
    int r = pthread_create(&thread, NULL, transfer_watch_reader, NULL);

    if (r)
        return err_sys(err, r, "start a thread");
    pthread_detach(thread);
    return 0;
}

static const struct {
    const char *name;
    bool folder;
    int (*run)(const struct settings *s, json_t **ret, struct err *err);
} verbs[] = {{"pull", true, transfer_transfer_run_pull},
             {"push", false, transfer_transfer_run_push},
             {"fetch", false, transfer_run_fetch}};

static int transfer_run_verb(size_t verb, json_t **ret, struct err *err)
{
    struct settings s = {0};
    int r = fetch_init(err);

    if (r >= 0)
        r = transfer_read_settings(&s, err);
    transfer_warm_up();
    if (r >= 0)
        r = transfer_become(&s, verbs[verb].folder ? TRANSFER_FD_FOLDER : -1, err);
    if (r >= 0)
        r = confine_network_program(NULL, 0, err); /* it reads what hostile registries send */
    if (r >= 0)
        r = transfer_start_watch(err);
    if (r >= 0)
        r = verbs[verb].run(&s, ret, err);
    settings_done(&s);
    return r;
}

static int transfer_run(int argc, char **argv, json_t **ret, struct err *err)
{
    for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(verbs); i++)
        if (STREQ(verbs[i].name, argv[1]))
            return transfer_run_verb(i, ret, err);
    return err_set(err, ERR_INVALID, "ripcord-transfer is started by ripcordd");
}

int transfer_main(int argc, char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    int r;

    json_wipe_freed();
    signal(SIGPIPE, SIG_IGN);
    for (int fd = TRANSFER_FD_ARCHIVE; fd < TRANSFER_FD_ARCHIVE + TRANSFER_FDS; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    r = transfer_run(argc, argv, &doc, &err);
    if (r < 0) {
        json_decref(doc);
        doc = json_from_err(&err);
    }
    text = json_to_text(doc, false);
    if (printf("%s\n", text) < 0 || fflush(stdout) != 0)
        return 1;
    return r < 0;
}
