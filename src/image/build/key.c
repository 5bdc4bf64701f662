#include "image/build/key.h"

#include <string.h>

#include "image/build/contents.h"
#include "image/build/filter.h"
#include "image/build/sources.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

void key_begin(struct build_key *k, const char *parent)
{
    k->d = digest_begin();
    key_text(k, "ripcord-build-2", parent);
}

void key_text(struct build_key *k, const char *name, const char *value)
{
    _cleanup_free_ char *head =
        xasprintf("%s %lld\n", name, value ? (long long)strlen(value) : -1LL);

    digest_add(k->d, head, strlen(head));
    if (value)
        digest_add(k->d, value, strlen(value));
}

void key_texts(struct build_key *k, const char *name, char *const *values)
{
    _cleanup_free_ char *count = xasprintf("%zu", strv_len(values));

    key_text(k, name, count);
    for (; values && *values; values++)
        key_text(k, name, *values);
}

static int key_add_bytes(void *arg, const void *data, size_t len)
{
    digest_add(arg, data, len);
    return 0;
}

/* Under its own name only where that decides what it is called: a folder's contents have none. */
static int key_add_source(struct build_key *k, int dir, const char *source,
                          const struct filter_want *want, struct err *err)
{
    _cleanup_(filter_freep) struct filter *filter = NULL;
    _cleanup_strv_ char **found = NULL;
    _cleanup_close_ int context = -1;
    int r = dir_open(dir, "context", &context, err);

    if (r >= 0)
        r = filter_find(context, source, want, &found, &filter, err);
    for (char **f = found; r >= 0 && f && *f; f++)
        r = contents_of(context, *f, *sources_name(*f) ? sources_name(*f) : ".", filter,
                        key_add_bytes, k->d, err);
    return r;
}

int key_source(struct build_key *k, int dir, const char *source, struct err *err)
{
    return key_add_source(k, dir, source, &(struct filter_want){0}, err);
}

int key_sources(struct build_key *k, int dir, const struct build_plan_step *s, struct err *err)
{
    const struct filter_want want = {.parents = s->parents, .exclude = s->exclude};
    int r = 0;

    for (char **p = s->sources; r >= 0 && p && *p; p++)
        r = key_add_source(k, dir, *p, &want, err);
    return r;
}

void key_end(struct build_key *k, char ret[static DIGEST_MAX])
{
    digest_end(k->d, ret);
    k->d = NULL;
}
