/*
 * Credentials for registries of images, as `docker login` and `podman login` leave them: 'auths' of
 * $DOCKER_CONFIG/config.json, else of ~/.docker/config.json.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"

struct docker_auth {
    char *username, *password; /* owned; both NULL: there are none */
};

/* `name` is an image's. A file that cannot be read or understood is an error; none is none. */
int docker_auth_find(const char *name, struct docker_auth *ret, struct err *err);
/* The same in the text of such a file; for tests. */
int docker_auth_parse(const char *text, size_t len, const char *registry, struct docker_auth *ret,
                      struct err *err);
/*
 * Credentials for all registries that a text may be about, as {"registry": {"username",
 * "password"}}; new, and NULL when there are none. Which images a Dockerfile comes to needs its
 * bases and their triggers, which are not here: a registry counts when its name is anywhere in one
 * of the texts, and Docker's own always.
 */
int docker_auth_collect(const char *const *texts, size_t n, json_t **ret, struct err *err);
/* The same from the text of such a file; for tests. */
int docker_auth_parse_all(const char *text, size_t len, const char *const *texts, size_t n,
                          json_t **ret, struct err *err);
/* Wipes the password and releases both. */
void docker_auth_done(struct docker_auth *a);
#define _cleanup_docker_auth_ __attribute__((cleanup(docker_auth_done)))
