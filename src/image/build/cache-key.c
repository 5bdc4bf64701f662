#include "image/build/cache-key.h"

#include <string.h>

#include "image/build/content-stream.h"
#include "image/build/filter.h"
#include "image/build/sources.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

void cache_key_begin(struct cache_key *k, const char *parent)
{
    k->d = digest_begin();
    cache_key_text(k, "ripcord-build-2", parent);
}

void cache_key_text(struct cache_key *k, const char *name, const char *value)
{
    _cleanup_free_ char *head =
        xasprintf("%s %lld\n", name, value ? (long long)strlen(value) : -1LL);

    digest_add(k->d, head, strlen(head));
    if (value)
        digest_add(k->d, value, strlen(value));
}

void cache_key_texts(struct cache_key *k, const char *name, char *const *values)
{
    _cleanup_free_ char *count = xasprintf("%zu", strv_len(values));

    cache_key_text(k, name, count);
    for (; values && *values; values++)
        cache_key_text(k, name, *values);
}

static int cache_key_add_bytes(void *arg, const void *data, size_t len)
{
    digest_add(arg, data, len);
    return 0;
}

static int cache_key_add_source(struct cache_key *k, int dir, const char *source,
                                const struct filter_want *want, struct err *err)
{
    _cleanup_(filter_freep) struct filter *filter = NULL;
    _cleanup_strv_ char **found = NULL;
    _cleanup_close_ int context = -1;
    int r;

    r = dir_open(dir, "context", &context, err);
    if (r < 0)
        return r;
    r = filter_find(context, source, want, &found, &filter, err);
    if (r < 0)
        return r;
    for (char **f = found; f && *f; f++) {
        const char *name = *sources_name(*f) ? sources_name(*f) : ".";

        r = content_stream_write(context, *f, name, filter, cache_key_add_bytes, k->d, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int cache_key_source(struct cache_key *k, int dir, const char *source, struct err *err)
{
    return cache_key_add_source(k, dir, source, &(struct filter_want){0}, err);
}

int cache_key_sources(struct cache_key *k, int dir, const struct build_plan_step *s,
                      struct err *err)
{
    const struct filter_want want = {.parents = s->parents, .exclude = s->exclude};
    int r;

    for (char **p = s->sources; p && *p; p++) {
        r = cache_key_add_source(k, dir, *p, &want, err);
        if (r < 0)
            return r;
    }
    return 0;
}

void cache_key_end(struct cache_key *k, char ret[static DIGEST_MAX])
{
    digest_end(k->d, ret);
    k->d = NULL;
}
