/*
 * Downloads one file from a URL that a Dockerfile names. The server is untrusted: a private address
 * is contacted only if its host is in the settings' hosts, and redirects follow the rules of
 * lib/http/fetch/fetch.h. The bytes are counted and written, never interpreted.
 */
#pragma once

#include "image/transfer/settings.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/*
 * file: receives the bytes. events: receives JSON lines. *ret: {"bytes", "etag", "modified"}, or
 * {"same": true} if the settings' etag is still current. "modified" is in seconds since the epoch;
 * it and "etag" are absent if the server does not send them.
 */
int download_run(const struct settings *s, int file, int events, json_t **ret, struct err *err);
