/*
 * Rewrites a page of PyPI's simple index. The upstream sends JSON (PEP 691) or HTML (PEP 503); we
 * write both forms, with links to the package cache. A file without a sha256 cannot be verified, so
 * the rewritten page lacks it.
 */
#pragma once

#include "packages/page-store.h"
#include "packages/policy.h"

#define PYPI_JSON "application/vnd.pypi.simple.v1+json"
#define PYPI_ACCEPT PYPI_JSON ", application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"

struct pypi_input {
    const char *name;         /* normalised */
    const char *url;          /* of the page, which links are relative to */
    const char *content_type; /* of the answer; may be NULL */
    const char *text;
    size_t len;
};

/* Adds the sections "json", "html" and "files" to the draft. */
int pypi_make_page(const struct pypi_input *in, const struct policy *policy, int64_t now,
                   struct page_draft *ret, struct err *err);
