/*
 * The links of an index page in HTML.
 */
#include "fuzz.h"
#include "packages/html-links.h"

static int on_link(void *arg, const struct html_link *l, struct err *err)
{
    (void)err;
    MUST(l->href && l->text);
    MUST(strlen(l->href) <= HTML_VALUE_MAX && strlen(l->text) <= HTML_VALUE_MAX);
    ++*(size_t *)arg;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size);
    size_t n = 0;

    (void)!html_links(copy, size, on_link, &n, NULL);
    MUST(n <= size / 2 + 1 && n <= HTML_LINKS_MAX);
    free(copy);
    return 0;
}
