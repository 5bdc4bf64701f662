/*
 * Secrets of one command in a container: files of its user's in a folder of its own, on a tmpfs
 * that the container has for them. Nothing here may mount, so the folder is private by its mode
 * alone; it goes when the command ends.
 */
#pragma once

#include "proto/guest.h"

#define SECRETS_DIR "/run/secrets"

/* *ret is the folder, or NULL without secrets. On failure nothing is left. */
int secrets_write(const struct guest_spec *spec, char **ret, struct err *err);
void secrets_remove(const struct guest_spec *spec, const char *folder); /* NULL is fine */
