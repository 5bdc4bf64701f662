/*
 * The policy decides which files may be served: a deny list and a minimum age. It is checked when an
 * index page is rewritten, and again for every file, where the client gets to see the reason.
 */
#pragma once

#include <stdint.h>

#include "packages/package-name.h"

struct policy_deny {
    bool any;           /* of both ecosystems */
    enum ecosystem eco; /* else of this one */
    char *name;         /* owned; may hold '*' */
    char *version;      /* owned; NULL: all */
};

struct policy {
    struct policy_deny *deny; /* owned */
    size_t n_deny;
    int64_t min_age; /* seconds; 0: any age */
    char *print;     /* owned: a fingerprint, which changes with the policy */
};

/* "name", "name==version", "npm:left-*", "pypi:name==1.0". */
int policy_add_deny(struct policy *p, const char *text, struct err *err);
/* Computes the fingerprint. Call it after the last change. */
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
/* Whether all versions are denied. */
bool policy_denies_name(const struct policy *p, enum ecosystem eco, const char *name);

/* "2024-05-01T10:00:00[.123456]Z" as seconds since the epoch; -1: malformed. */
int64_t policy_parse_time(const char *s);
