/*
 * The ports that listen inside a sandbox, as text for an error message.
 */
#pragma once

#include <stdbool.h>

struct api;

/* text: "8000 (127.0.0.1), 9000 (::)", "" if nothing listens; NULL: they could not be read. */
typedef void (*port_summary_fn)(void *arg, const char *text);

/* False: they cannot be read, and done is not called. It is never called before this returns. */
bool port_summary(struct api *a, const char *sandbox, port_summary_fn done, void *arg);
