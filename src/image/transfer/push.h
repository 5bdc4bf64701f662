/*
 * An OCI layout, as ripcord-image packs it (image/archive/export.h), into a repository: blobs that
 * are there already are left out, the others are sent as they come out of the pipe, and the
 * manifest last, so that what breaks off is never a half image there.
 */
#pragma once

#include "image/transfer/settings.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* archive: the layout. events: takes JSON lines. *ret: {"name", "digest", "layers", "sent",
 * "bytes"}. */
int push_run(const struct settings *s, int archive, int events, json_t **ret, struct err *err);
