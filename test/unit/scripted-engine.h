/*
 * A scripted engine for tests: one thread, one act for each connection in turn. It reads the
 * request as the act says, sends the act's bytes and closes, hangs or resets. A connection beyond
 * the script is closed at once.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "dockerapi/docker.h"

enum act_kind {
    ACT_REPLY, /* whole request, then the bytes, then close */
    ACT_STAY,  /* the same, but the connection stays open until the test ends */
    ACT_EARLY, /* the head only, then the bytes, then close with the rest unread */
    ACT_DEAF,  /* the head only, then the bytes; neither reads nor closes */
    ACT_ECHO,  /* whole request, the bytes, then all that comes is sent back until its end */
};

struct act {
    enum act_kind kind;
    const char *bytes;
    size_t len; /* 0: strlen */
};

struct fake {
    struct docker_endpoint endpoint; /* of it; certs is the client's folder */
    int listener;
    int stop[2]; /* pipe: closing its write end ends everything */
    pthread_t thread;
    const struct act *acts;
    size_t n;
    void *tls; /* SSL_CTX, or NULL */
    pthread_mutex_t lock;
    struct buf seen; /* all requests, as they came */
    int held[8];     /* connections that stay */
    size_t n_held;
};

/* In `folder`, which must exist; where NULL: TCP on a free port of 127.0.0.1. */
void fake_start(struct fake *f, const char *folder, const struct act *acts, size_t n);
/* TCP with TLS: folder/server.pem, server-key.pem; client_ca: clients must show a certificate of
 * it, or NULL. */
void fake_start_tls(struct fake *f, const char *folder, const char *client_ca,
                    const struct act *acts, size_t n);
void fake_stop(struct fake *f);
/* Whether the requests so far hold the text. */
bool fake_saw(struct fake *f, const char *text);
