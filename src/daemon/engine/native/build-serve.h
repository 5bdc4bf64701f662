/*
 * The connections of ripcord-build to the daemon (image/build/daemon-conn.h): one for each process
 * that builds. A thread for each connection passes its events on and carries out its requests, one
 * at a time: run a command, pull an image, download a file. The connection is at one step at a
 * time. When it ends, its request is cancelled and its step ends with an error.
 *
 * All calls are made by the build's worker.
 */
#pragma once

#include "daemon/engine/native/native.h"

struct build_serve;

/* The task's cancel_fd is not used: each connection sets its own. */
struct build_serve *build_serve_new(const struct native_task *task);
/* Makes a connection and serves it. *ret: the end for ripcord-build; the caller closes it. */
int build_serve_open(struct build_serve *s, int *ret, struct err *err);
/* Ends all connections and waits for their threads. Frees `s`; NULL is fine. Fails when a
 * connection has ended because of an invalid message. */
int build_serve_end(struct build_serve *s, struct err *err);
