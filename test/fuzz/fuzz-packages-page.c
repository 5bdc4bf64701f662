/*
 * What an upstream says of a package, in each of the forms that we read: the first byte chooses.
 * Whatever comes out must be JSON again and must not lead past us.
 */
#include <jansson.h>

#include "fuzz.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "packages/npm-page.h"
#include "packages/pypi-page.h"

/* Stands in for curl's. */
char *fetch_url_join(const char *base, const char *ref)
{
    return strchr(ref, ':') ? xstrdup(ref) : xasprintf("%s%s", base, ref);
}

static void check(struct page_draft *d)
{
    struct buf *files = &d->sections[d->n_sections - 1].body;
    struct page_file f;
    json_t *j =
        json_loadb(buf_data(&d->sections[0].body), d->sections[0].body.len, JSON_ALLOW_NUL, NULL);

    MUST(j);
    json_decref(j);
    if (page_file_find(files, "demo-1.0.tar.gz", &f))
        MUST(strcmp(f.name, "demo-1.0.tar.gz") == 0 && f.digest.hex[0] && f.url[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = {"application/json", "text/html"};
    struct policy policy = {.min_age = size && data[0] & 4 ? 86400 : 0};
    struct page_draft d = {.policy = "x"};
    char *copy;
    int r;

    if (size == 0)
        return 0;
    copy = fuzz_copy(data + 1, size - 1);
    if (data[0] & 2)
        r = npm_make_page(&(struct npm_input){.name = "@s/demo",
                                              .url = "https://up/",
                                              .abbreviate = data[0] & 1,
                                              .text = copy,
                                              .len = size - 1},
                          &policy, 2000000000, &d, NULL);
    else
        r = pypi_make_page(&(struct pypi_input){.name = "demo",
                                                .url = "https://up/",
                                                .content_type = types[data[0] & 1],
                                                .text = copy,
                                                .len = size - 1},
                           &policy, 2000000000, &d, NULL);
    if (r >= 0)
        check(&d);
    page_draft_done(&d);
    free(copy);
    return 0;
}
