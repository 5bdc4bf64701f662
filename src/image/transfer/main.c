#include "image/transfer/main.h"

#include <errno.h>
#include <fcntl.h>
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
#include "lib/os/static-program.h"
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

/* Becomes the unprivileged user of the settings, who gets the folder of downloads. */
static int transfer_become(const struct settings *s, int folder, struct err *err)
{
    if (!s->change_user) /* uid 0 of a user namespace has capabilities too */
        return caps_set(CAPS_NONE, err);
    if (folder >= 0 && fchown(folder, s->uid, s->uid) < 0)
        return err_sys(err, errno, "set the owner of the downloads folder to user %u", s->uid);
    return caps_become(s->uid, s->uid, err);
}

static int transfer_main_pull(const struct settings *s, json_t **ret, struct err *err)
{
    const struct pull_fds fds = {TRANSFER_FD_ARCHIVE, TRANSFER_FD_EVENTS, TRANSFER_FD_FOLDER};

    *ret = json_object();
    return pull_run(s, &fds, err);
}

static int transfer_main_push(const struct settings *s, json_t **ret, struct err *err)
{
    return push_run(s, TRANSFER_FD_ARCHIVE, TRANSFER_FD_EVENTS, ret, err);
}

static int transfer_main_fetch(const struct settings *s, json_t **ret, struct err *err)
{
    return download_run(s, TRANSFER_FD_ARCHIVE, TRANSFER_FD_EVENTS, ret, err);
}

/*
 * Ends the process when the reader of the events closes its end, because nobody wants the result
 * any more. Without this thread a slow server would keep the process waiting. It may end at any
 * point: the next pull resumes an interrupted download.
 */
static void *transfer_watch_reader(void *arg _unused_)
{
    struct pollfd p = {.fd = TRANSFER_FD_EVENTS};

    for (;;)
        if (poll(&p, 1, -1) > 0 && p.revents)
            _exit(1);
}

static const struct {
    const char *name;
    bool folder;
    int (*run)(const struct settings *s, json_t **ret, struct err *err);
} verbs[] = {{"pull", true, transfer_main_pull},
             {"push", false, transfer_main_push},
             {"fetch", false, transfer_main_fetch}};

static int transfer_run_verb(size_t verb, json_t **ret, struct err *err)
{
    _cleanup_(settings_done) struct settings s = {0};
    pthread_t thread;
    int r;

    r = fetch_init(err);
    if (r < 0)
        return r;
    r = transfer_read_settings(&s, err);
    if (r < 0)
        return r;
    r = transfer_become(&s, verbs[verb].folder ? TRANSFER_FD_FOLDER : -1, err);
    if (r < 0)
        return r;
    r = confine_network_program(NULL, 0, err); /* from here on it reads data of untrusted servers */
    if (r < 0)
        return r;
    r = pthread_create(&thread, NULL, transfer_watch_reader, NULL);
    if (r)
        return err_sys(err, r, "start a thread");
    pthread_detach(thread);
    return verbs[verb].run(&s, ret, err);
}

static int transfer_run(int argc, char **argv, json_t **ret, struct err *err)
{
    for (size_t i = 0; argc == 2 && i < ARRAY_SIZE(verbs); i++)
        if (STREQ(verbs[i].name, argv[1]))
            return transfer_run_verb(i, ret, err);
    err_set(err, ERR_INVALID, "ripcord-transfer is not for use by hand: ripcordd starts it");
    return err_hint(err, "Run `ripcord image pull` or `ripcord image push`.");
}

int transfer_main(int argc, char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    int r;

    static_program_init();
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
