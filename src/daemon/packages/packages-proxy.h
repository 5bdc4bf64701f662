/*
 * The daemon's side of ripcord-packages: starts the process when it is first needed, starts it
 * again when it has ended, and gives it the listening sockets of the sandboxes (proto/packages.h).
 *
 * Needed means: a sandbox has connected to its socket, or somebody asks. Until then the keeper
 * itself watches each socket, so that a sandbox that installs nothing costs the registry nothing.
 * A registry that has ended gives all of them back: the next connection starts another. One that
 * does not start is tried again with growing pauses, and those who connect meanwhile are cut off at
 * once rather than left waiting. All on the loop.
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
    char *const *env;     /* copied: of the process; proxy variables */
    void (*on_warning)(void *arg, const char *message);
    void (*on_event)(void *arg, const char *json); /* as in proto/packages.h */
    void *arg;
};

struct packages_proxy *packages_proxy_new(const struct packages_proxy_config *config);
void packages_proxy_free(
    struct packages_proxy *k); /* ends the process; what runs there gets a moment */
/* To be called about once a second. */
void packages_proxy_tick(struct packages_proxy *k);

/* Takes the socket. A second one for the same sandbox takes the first one's place. */
void packages_proxy_attach(struct packages_proxy *k, const char *sandbox, int fd);
void packages_proxy_forget(struct packages_proxy *k,
                           const char *sandbox); /* fine when it is not there */

/* The registry has its socket, and thus counts for it. */
bool packages_proxy_serves(const struct packages_proxy *k, const char *sandbox);

/* Why the registry does not serve; NULL: it does, or nobody has needed it yet. */
const char *packages_proxy_trouble(const struct packages_proxy *k);

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
 * packages_proxy_ask() has returned, and not at all once the keeper is freed. */
typedef void (*packages_proxy_fn)(void *arg, const struct err *err, const char *json);
/* Starts the registry when it does not run. */
void packages_proxy_ask(struct packages_proxy *k, const struct packages_proxy_ask *ask,
                        packages_proxy_fn done, void *arg);
