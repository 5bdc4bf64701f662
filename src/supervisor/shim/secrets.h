/*
 * Secrets of one command: files on a tmpfs that only it and its children see.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/handover.h"
#include "supervisor/shim/user.h"

#define SECRETS_DIR "/run/secrets"

/*
 * In the helper, inside the sandbox, before it becomes the user: a mount namespace of its own with
 * the user's 0400 files at SECRETS_DIR, or where each is to be. Both go with the last process of
 * the command, and neither the rest of the sandbox nor a later command ever had them. Nothing to do
 * without secrets.
 */
int secrets_place(const struct handover *h, const struct user *u, bool many_ids, struct err *err);
