/*
 * Pushes an OCI layout, as ripcord-image packs it (image/archive/export.h), into a repository.
 * Blobs that the registry has are not sent; the others are sent as they arrive through the pipe.
 * The manifest comes last, so an interrupted push never leaves half an image there.
 */
#pragma once

#include "image/transfer/settings.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* archive: the layout. events: receives JSON lines. *ret: {"name", "digest", "layers", "sent",
 * "bytes"}. */
int push_run(const struct settings *s, int archive, int events, json_t **ret, struct err *err);
