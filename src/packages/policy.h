/*
 * What may be served: a deny list and a least age. Asked where an index page is made, and again for
 * every file, which is where the client is told why.
 */
#pragma once

#include <stdint.h>

#include "packages/name.h"

struct policy_deny {
    bool any;           /* of both ecosystems */
    enum ecosystem eco; /* else of this one */
    char *name;         /* owned; may hold '*' */
    char *version;      /* owned; NULL: all */
};

struct policy {
    struct policy_deny *deny; /* owned */
    size_t n_deny;
    int64_t min_age; /* seconds; 0: none */
    char *print;     /* owned: changes when the policy does */
};

/* "name", "name==version", "npm:left-*", "pypi:name==1.0". */
int policy_add_deny(struct policy *p, const char *text, struct err *err);
/* After the last change. */
void policy_seal(struct policy *p);
void policy_done(struct policy *p);

struct policy_item {
    enum ecosystem eco;
    const char *name, *version; /* version: "" when it is not known */
    int64_t uploaded;           /* seconds since the epoch; -1: not known */
};

enum { POLICY_REASON_MAX = 400 };
/* True when it is denied; the reason is plain ASCII, good for a status line. */
bool policy_denies(const struct policy *p, const struct policy_item *item, int64_t now,
                   char reason[static POLICY_REASON_MAX]);
/* Denied whatever the version. */
bool policy_denies_name(const struct policy *p, enum ecosystem eco, const char *name);

/* "2024-05-01T10:00:00[.123456]Z" as seconds since the epoch; -1 when it is none. */
int64_t policy_parse_time(const char *s);
