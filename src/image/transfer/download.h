/*
 * One file from an address that a Dockerfile names. The server is whoever that is: a private
 * address is asked only when its host is among the settings' hosts, redirects are followed by the
 * rules of lib/http/fetch/fetch.h, and what it sends is bytes, counted and written, and nothing
 * more.
 */
#pragma once

#include "image/transfer/settings.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/*
 * file: takes the bytes. events: takes JSON lines. *ret: {"bytes", "etag", "modified"}, the last in
 * seconds since the epoch, both absent where the server does not say; or {"same": true} when the
 * settings' etag still holds.
 */
int download_run(const struct settings *s, int file, int events, json_t **ret, struct err *err);
