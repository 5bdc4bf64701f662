/*
 * What lets a web page use the API over TCP, because a browser cannot send the token everywhere:
 * sessions, which are cookies, and tickets, which open one WebSocket. Both are in memory only, so
 * they end with the daemon. `now` is time_mono(). All on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"
#include "lib/base/token.h"

#define WEB_SESSION_LIFE (12 * UINT64_C(3600) * USEC_PER_SEC)
#define WEB_TICKET_LIFE (30 * USEC_PER_SEC)

enum { WEB_PATH_MAX = 512 };

struct web_access;

struct web_access *web_access_new(void);
void web_access_free(struct web_access *w); /* NULL is fine */
/* Ends all of them: the token that they came from is no longer valid. */
void web_access_drop(struct web_access *w);

/* If there are too many sessions, the oldest ends. */
int web_session_begin(struct web_access *w, uint64_t now, struct api_token *ret, struct err *err);
bool web_session_is(struct web_access *w, uint64_t now, const char *text);
/* False: there is no such session. */
bool web_session_end(struct web_access *w, const char *text);

/* The ticket opens a WebSocket at this path, once. ERR_LIMIT: too many that are not used yet. */
int web_ticket_new(struct web_access *w, uint64_t now, const char *path, struct api_token *ret,
                   struct err *err);
/* Uses it up, also if it is for another path. */
bool web_ticket_use(struct web_access *w, uint64_t now, const char *path, const char *text);
