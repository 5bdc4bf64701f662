/*
 * Finds the links of a simple index page (PEP 503), for upstreams without JSON. It understands tags,
 * quoted and bare attributes, comments and a few character references, and skips everything else.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"

enum { HTML_VALUE_MAX = 8 << 10, HTML_LINKS_MAX = 200000 };

struct html_link {
    const char *href;            /* decoded; never NULL */
    const char *text;            /* between <a> and </a>, trimmed, tags left out; may be "" */
    const char *requires_python; /* the data- attributes; NULL: absent */
    const char *yanked;
    const char *core_metadata; /* data-core-metadata, else data-dist-info-metadata */
    const char *upload_time;   /* not in a PEP, but some mirrors give it */
};

/* The strings are valid until `fn` returns. */
typedef int (*html_link_fn)(void *arg, const struct html_link *link, struct err *err);
int html_links(const char *page, size_t len, html_link_fn fn, void *arg, struct err *err);
