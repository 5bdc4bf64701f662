/*
 * The daemon's side of ripcord-packages. It starts the process on first need, starts it again after
 * it has ended, and passes it the listening sockets of the sandboxes (proto/packages.h).
 *
 * First need means: a client in a sandbox has connected, or the daemon has a request. Until then
 * the proxy watches each socket itself, so a sandbox that installs nothing costs no process. When
 * the process ends, the proxy watches all sockets again, and the next connection starts a new
 * process. A process that does not start is tried again with growing pauses. During a pause, a
 * connection waits if the next try is at most two seconds away; otherwise it is closed at once.
 * Everything runs on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct loop;

struct packages_proxy_config {
    struct loop *loop;
    const char *program;  /* copied */
    const char *settings; /* copied: the document of packages/config.h */
    char *const *env;     /* copied: environment of the process (proxy variables) */
    void (*on_warning)(void *arg, const char *message);
    void (*on_event)(void *arg, const char *json); /* as in proto/packages.h */
    void *arg;
};

struct packages_proxy *packages_proxy_new(const struct packages_proxy_config *config);
void packages_proxy_free(
    struct packages_proxy *proxy); /* ends the process; its requests get a moment */
/* Call it about once a second. */
void packages_proxy_tick(struct packages_proxy *proxy);

/* Takes the socket. A second socket for the same sandbox replaces the first. owner_only: serves the
 * user to whom the socket belongs, as others on this machine can reach it. */
void packages_proxy_attach(struct packages_proxy *proxy, const char *sandbox, int fd,
                           bool owner_only);
void packages_proxy_forget(struct packages_proxy *proxy, const char *sandbox); /* may be unknown */

/* Whether ripcord-packages has the socket of this sandbox, and so has counters for it. */
bool packages_proxy_serves(const struct packages_proxy *proxy, const char *sandbox);

/* Why the package cache does not run. NULL: it runs, or was not needed yet. */
const char *packages_proxy_trouble(const struct packages_proxy *proxy);

enum packages_proxy_question {
    PACKAGES_PROXY_STATS,
    PACKAGES_PROXY_LIST,
    PACKAGES_PROXY_SHOW,
    PACKAGES_PROXY_VERIFY,
    PACKAGES_PROXY_PRUNE
};

struct packages_proxy_ask {
    enum packages_proxy_question what;
    const char *subject;  /* SHOW */
    const uint64_t *keep; /* PRUNE: bytes; NULL: the budget */
    uint64_t unused_for;  /* PRUNE: seconds; 0: of any age */
};

/* json is NUL-terminated and valid during the call; NULL with an error. Never called before
 * packages_proxy_ask() has returned, and never after packages_proxy_free(). */
typedef void (*packages_proxy_fn)(void *arg, const struct err *err, const char *json);
/* Starts the process when it does not run. */
void packages_proxy_ask(struct packages_proxy *proxy, const struct packages_proxy_ask *ask,
                        packages_proxy_fn done, void *arg);
