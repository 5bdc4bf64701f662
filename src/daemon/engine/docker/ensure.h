/*
 * Volumes and the network, made when they are not there. Of many callers who want the same object
 * at once, one asks the engine and the others get its answer. Success is remembered until somebody
 * finds the object missing or the engine has been restarted.
 *
 * An object of that name that is there already is looked at: driver, options and labels must be
 * what we would have made, else the error says how it differs. "It exists" is never an assumption.
 *
 * What is shared by all roots of a prefix (the network, shared caches) carries LABEL_SHARED with
 * the prefix, and LABEL_ROOT of whoever came first: only the former is compared.
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

/* id NULL: shared by all roots; else the sandbox that it belongs to. */
int ensure_volume(struct docker_engine *d, const char *name, const char *id,
                  const struct deadline *by, struct err *err);
/* The network of mode `open`; *ret is its id, to be freed. */
int ensure_network(struct docker_engine *d, const struct deadline *by, char **ret, struct err *err);
