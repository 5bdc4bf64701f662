/*
 * The supervisors of one engine's running sandboxes: finds them, connects to them, ends them.
 *
 * A supervisor is never identified by a remembered pid. One that we started is our child, and its
 * pid is not reused until we reap it; any other is the peer of its socket, as the kernel reports it
 * while the connection stands. Any thread.
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
    struct map children; /* sandbox id -> (void *)pid, of children that are not reaped */
};

void supervisors_init(struct supervisors *s);
void supervisors_done(struct supervisors *s);

void supervisors_add(struct supervisors *s, const char *id, pid_t pid);
/* As engine_ops.connect. */
int supervisors_connect(struct supervisors *s, const char *id, const struct deadline *by,
                        struct engine_sandbox *ret, struct err *err);
/* Kills and reaps the supervisor; fine when there is none. */
int supervisors_end(struct supervisors *s, const char *id, const struct deadline *by,
                    struct err *err);
