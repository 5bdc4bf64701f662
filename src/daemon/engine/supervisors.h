/*
 * The supervisors of one engine's running sandboxes: finding them, reaching them, ending them.
 *
 * Who a supervisor is, is never taken from a remembered number. One that we started is our child,
 * and its pid stays its own until we reap it; any other is the peer of its socket, asked from the
 * kernel while the connection stands. Any thread.
 */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/base/map.h"
#include "lib/base/time.h"

struct engine_sandbox;

struct supervisors {
    int runs; /* borrowed: the folder that holds <sandbox id>/shim.sock */
    pthread_mutex_t lock;
    struct map children; /* sandbox id -> (void *)pid that we started and have not reaped */
};

void supervisors_init(struct supervisors *s);
void supervisors_done(struct supervisors *s);

void supervisors_add(struct supervisors *s, const char *id, pid_t pid);
/* As engine_ops.connect. */
int supervisors_connect(struct supervisors *s, const char *id, const struct deadline *by,
                        struct engine_sandbox *ret, struct err *err);
/* Kills and reaps it; fine when there is none. */
int supervisors_end(struct supervisors *s, const char *id, const struct deadline *by,
                    struct err *err);
