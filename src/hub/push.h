/*
 * An OCI layout, as ripcord-image packs it (image/export.h), into a repository: blobs that are
 * there already are left out, the others are sent as they come out of the pipe, and the manifest
 * last, so that what breaks off is never a half image there.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "hub/settings.h"

/* archive: the layout. events: takes JSON lines. *ret: {"name", "digest", "layers", "sent",
 * "bytes"}. */
int push_run(const struct settings *s, int archive, int events, json_t **ret, struct err *err);
