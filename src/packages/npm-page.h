/*
 * Rewrites an npm index page (packument): one document with all versions of a package, in full or
 * abbreviated. Links to tarballs point to the package cache. The rewritten page lacks versions
 * without a digest and versions that the policy denies; tags that named them move or are removed.
 */
#pragma once

#include "packages/page-store.h"
#include "packages/policy.h"

#define NPM_ABBREVIATED "application/vnd.npm.install-v1+json"
#define NPM_ACCEPT_ABBREVIATED NPM_ABBREVIATED ", application/json;q=0.8"
/* Placeholder in stored documents for "http://HOST": each request replaces it by its own host. The
 * old word stays, because documents on disk have it. */
#define NPM_BASE "http://ripcord-registry.invalid"

struct npm_input {
    const char *name;
    const char *url; /* of the document */
    bool abbreviate; /* write the abbreviated form; else keep the form of the document */
    const char *text;
    size_t len;
};

/* Adds the sections "json" and "files". */
int npm_make_page(const struct npm_input *in, const struct policy *policy, int64_t now,
                  struct page_draft *ret, struct err *err);

/* `body` with NPM_BASE replaced by http://host; a new buffer. */
int npm_set_host(const struct buf *body, const char *host, struct buf *ret, struct err *err);
/* Compares two versions by their semver numbers; prereleases are lower than releases. */
int npm_version_cmp(const char *a, const char *b);
