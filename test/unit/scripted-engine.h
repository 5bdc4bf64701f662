/*
 * A scripted engine for tests. One thread plays one act for each connection, in order: it reads the
 * request, sends the bytes of the act, and then closes, hangs or resets. Further connections are
 * closed at once.
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
    ACT_ECHO,  /* whole request, the bytes, then sends all input back until its end */
};

struct act {
    enum act_kind kind;
    const char *bytes;
    size_t len; /* 0: strlen */
};

struct fake {
    struct docker_endpoint endpoint; /* of this engine; certs is the client's folder */
    int listener;
    int stop[2]; /* pipe: closing its write end ends everything */
    pthread_t thread;
    const struct act *acts;
    size_t n;
    void *tls; /* SSL_CTX, or NULL */
    pthread_mutex_t lock;
    struct buf seen; /* all requests, unchanged */
    int held[8];     /* connections that stay */
    size_t n_held;
};

/* Listens on a socket in `folder`, which must exist. NULL: TCP on a free port of 127.0.0.1. */
void fake_start(struct fake *f, const char *folder, const struct act *acts, size_t n);
/* Listens on TCP with TLS (folder/server.pem, server-key.pem). client_ca: clients must present a
 * certificate of this CA; NULL: they need none. */
void fake_start_tls(struct fake *f, const char *folder, const char *client_ca,
                    const struct act *acts, size_t n);
void fake_stop(struct fake *f);
/* Whether the requests so far contain the text. */
bool fake_saw(struct fake *f, const char *text);
