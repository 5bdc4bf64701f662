/*
 * The builder: a context and a Dockerfile become an image of the store. It does all of it but run
 * commands and fetch images, which is asked of whoever started it.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "image/confined.h"
#include "image/images.h"

struct build_ask {
    const char *dockerfile; /* path in the context */
    const char *target;     /* or NULL */
    char **tags, **args;    /* owned */
    bool no_cache;
    bool pull;           /* asks for images that are in the store, too */
    const char *network; /* of commands: "none", "packages" or "open" */
};

struct build_ops {
    /* What happens; takes the document:
     *   {"step": TEXT, "stage": NAME, "n": 2, "of": 4, "line": 7}   one begins
     *   {"cached": true}                                            it is there already
     *   {"end": ERROR or null}                                      it has ended
     */
    void (*tell)(void *arg, json_t *event);
    /* Runs a command on layers; takes the document (build.c, struct run). Waits for its end, and
     * its files are in their place then. Fails when the command does. */
    int (*run)(void *arg, json_t *run, struct err *err);
    /* Brings an image in: {"name", "as"}, what it is called here where that is another name. */
    int (*pull)(void *arg, json_t *pull, struct err *err);
    void *arg;
};

/* The store is locked for adding. name: of its folder in tmp/. *ret: {"id", "names", "layers"}. */
int build_image(struct images *s, const struct confined_ids *ids, const char *name, int context,
                const struct build_ask *ask, const struct build_ops *ops, json_t **ret,
                struct err *err);
