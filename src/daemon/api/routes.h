/*
 * The route list: every method and path of the API, its handler and its flags. routes.c has the
 * table; docs/openapi.yaml documents each row.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

struct api_call;

enum route_flags {
    ROUTE_BODY = 1 << 0,        /* takes a JSON object; an empty body is {} */
    ROUTE_UPGRADE = 1 << 1,     /* needs `Upgrade: ripcord-exec/1` */
    ROUTE_FRESH_STATE = 1 << 2, /* shows states: waits until recovery has found them */
    ROUTE_MAY_UPGRADE = 1 << 3, /* allows `Upgrade: ripcord-exec/1` */
    ROUTE_TUNNEL = 1 << 4,      /* needs `Upgrade: tcp` */
    ROUTE_STREAM = 1 << 5,      /* takes a body of any length, in pieces as they arrive */
    ROUTE_LIVE = 1 << 6,        /* is dropped if the peer goes before the handler starts */
    ROUTE_FOLLOW = 1 << 8,      /* the answer may have no end: not for HEAD */
    ROUTE_WEBSOCKET = 1 << 9,   /* needs `Upgrade: websocket` */
    ROUTE_SOON = 1 << 7,        /* with FRESH_STATE: waits only briefly, then shows `reconciling` */
    ROUTE_KEY = 1 << 10,        /* takes an `Idempotency-Key` */
    ROUTE_EXEC = 1 << 11,       /* with KEY: makes an exec, see exec-retry.h */
};

typedef void (*route_fn)(struct api_call *c);

enum { ROUTE_QUERY_MAX = 12 };

struct route {
    const char *method;
    const char *pattern; /* "*" matches one segment, which becomes a parameter */
    route_fn handler;
    unsigned flags;
    const char *query[ROUTE_QUERY_MAX]; /* names of its query parameters; fewer end with NULL */
};

/* A path and everything below it that has a new name. */
struct route_rename {
    const char *old, *now;
};

/* NULL if no route matches. */
const struct route *routes_find(const char *method, const char *path);
/* The methods of a path, as in the header Allow; NULL if the path does not exist. */
char *routes_allowed(const char *path);
/* Refuses query parameters that the route does not have. */
int routes_check_query(const struct route *route, const char *query, struct err *err);
/* Whether a web page may use the route with its session or a ticket. Not what a port of a sandbox
 * serves: a hostile page from there would run with our origin, and have our session. */
bool routes_admits_pages(const struct route *route);
/* Cuts `path`, which matches the route, into segments; ret_params gets those that "*" matched. */
void routes_split(const struct route *route, char *path, const char **ret_params, size_t max);
/* What the i-th "*" of its pattern stands for, such as "sandbox". */
const char *routes_param_name(const struct route *route, size_t i);
/* The rename that applies to this path, or NULL. */
const struct route_rename *routes_renamed(const char *path);
