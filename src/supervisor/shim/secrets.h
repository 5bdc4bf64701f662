/*
 * Secrets of one command: files on a tmpfs that only the command and its children see.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/user.h"
#include "proto/handover.h"

#define SECRETS_DIR "/run/secrets"

/*
 * Called in the helper, inside the sandbox, before it becomes the user. It makes a mount namespace
 * with files of mode 0400 at SECRETS_DIR, or at each secret's target. Namespace and files disappear
 * with the last process of the command; other commands never see them. many_ids: more than one id
 * is mapped. Does nothing without secrets.
 */
int secrets_place(const struct handover *h, const struct user *u, bool many_ids, struct err *err);
