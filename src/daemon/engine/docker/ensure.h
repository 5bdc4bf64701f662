/*
 * Creates volumes and the network if they do not exist. When several callers need the same object
 * at once, one of them asks the engine and the others get its result. Success is cached until a
 * caller finds the object missing or the engine restarts. The functions may be called on any worker
 * thread.
 *
 * An existing object of the same name is checked: driver, options and labels must be those that we
 * would have used. Otherwise the error says what differs.
 *
 * Objects that all roots of a prefix share (the network, shared caches) have LABEL_SHARED with the
 * prefix, and LABEL_ROOT of the root that created them. Only LABEL_SHARED is compared.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/map.h"
#include "lib/base/time.h"

struct docker_engine;

#define LABEL_SHARED "ripcord.shared"

struct ensured {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct map objects; /* "volume NAME" or "network NAME" -> struct ensured_object */
};

void ensured_init(struct ensured *e);
void ensured_done(struct ensured *e);
void ensured_forget(struct ensured *e, const char *kind, const char *name);
void ensured_forget_all(struct ensured *e);

/* id: the sandbox that owns the volume; NULL: all roots share it. */
int ensure_volume(struct docker_engine *d, const char *name, const char *id,
                  const struct deadline *by, struct err *err);
/* The network of mode `open`. *ret is its id, the caller's to free. */
int ensure_network(struct docker_engine *d, const struct deadline *by, char **ret, struct err *err);
