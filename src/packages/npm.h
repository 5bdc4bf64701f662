/*
 * npm's packuments: all of a package's versions in one document, in full or abbreviated. Links to
 * tarballs lead to us, under the one name that npm itself gives them; versions without any digest,
 * denied and too young ones are left out, and tags that pointed there move or go.
 */
#pragma once

#include "packages/page.h"
#include "packages/policy.h"

#define NPM_ABBREVIATED "application/vnd.npm.install-v1+json"
#define NPM_ACCEPT_ABBREVIATED NPM_ABBREVIATED ", application/json;q=0.8"
/* Stands in kept documents for "http://HOST", which only the request knows. */
#define NPM_BASE "http://ripcord-registry.invalid"

struct npm_input {
    const char *name;
    const char *url; /* of the document */
    bool abbreviate; /* give the short form; else the document's own */
    const char *text;
    size_t len;
};

/* Adds the sections "json" and "files". */
int npm_make_page(const struct npm_input *in, const struct policy *policy, int64_t now,
                  struct page_draft *ret, struct err *err);

/* `body` with NPM_BASE replaced by http://host; a new buffer. */
int npm_set_host(const struct buf *body, const char *host, struct buf *ret, struct err *err);
/* Of two versions, by the numbers of semver; prereleases are lower. */
int npm_version_cmp(const char *a, const char *b);
