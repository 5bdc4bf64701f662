/*
 * Credentials for image registries, as `docker login` and `podman login` store them: 'auths' in
 * $DOCKER_CONFIG/config.json, else in ~/.docker/config.json.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/base/json.h"

struct docker_auth {
    char *username, *password; /* owned; both are NULL without credentials */
};

/* Finds the credentials for the registry of an image name. A missing file means no credentials; a
 * file that cannot be read or parsed is an error. */
int docker_auth_find(const char *name, struct docker_auth *ret, struct err *err);
/* The same with the text of the file; for tests. */
int docker_auth_parse(const char *text, size_t len, const char *registry, struct docker_auth *ret,
                      struct err *err);
/*
 * Finds the credentials for all registries that a build may need, as {"registry": {"username",
 * "password"}}: a new object, or NULL without credentials. The exact list of images depends on base
 * images and their triggers, which only the builder sees. So a registry is included when its name
 * occurs anywhere in one of the texts, and Docker Hub is always included.
 */
int docker_auth_collect(const char *const *texts, size_t n, json_t **ret, struct err *err);
/* The same with the text of the file; for tests. */
int docker_auth_parse_all(const char *text, size_t len, const char *const *texts, size_t n,
                          json_t **ret, struct err *err);
/* Wipes the password and releases both. */
void docker_auth_done(struct docker_auth *a);
#define _cleanup_docker_auth_ __attribute__((cleanup(docker_auth_done)))
