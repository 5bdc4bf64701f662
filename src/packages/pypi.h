/*
 * PyPI's simple index: from what an upstream gives (PEP 691 JSON or PEP 503 HTML) to what we give,
 * in both forms, with links to us. A file without a sha256 cannot be verified and is left out.
 */
#pragma once

#include "packages/page.h"
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
