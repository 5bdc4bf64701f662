/*
 * Secrets of one command in a container: files of its user in a folder of their own, on the
 * container's tmpfs for secrets. The guest may not mount, so only the folder's mode keeps it
 * private. The folder is removed when the command ends.
 */
#pragma once

#include "proto/guest.h"

#define SECRETS_DIR "/run/secrets"

/* *ret is the folder, or NULL without secrets. On failure no file is left. */
int secrets_write(const struct guest_spec *spec, char **ret, struct err *err);
void secrets_remove(const struct guest_spec *spec, const char *folder); /* NULL is fine */
