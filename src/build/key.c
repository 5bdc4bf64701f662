#include "build/key.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "build/contents.h"
#include "build/sources.h"

void key_begin(struct key *k, const char *parent)
{
    k->d = digest_begin();
    key_text(k, "ripcord-build-1", parent);
}

void key_text(struct key *k, const char *name, const char *value)
{
    _cleanup_free_ char *head =
        xasprintf("%s %lld\n", name, value ? (long long)strlen(value) : -1LL);

    digest_add(k->d, head, strlen(head));
    if (value)
        digest_add(k->d, value, strlen(value));
}

void key_texts(struct key *k, const char *name, char *const *values)
{
    _cleanup_free_ char *count = xasprintf("%zu", strv_len(values));

    key_text(k, name, count);
    for (; values && *values; values++)
        key_text(k, name, *values);
}

static int add_bytes(void *arg, const void *data, size_t len)
{
    digest_add(arg, data, len);
    return 0;
}

/* Under its own name only where that decides what it is called: a folder's contents have none. */
int key_source(struct key *k, int dir, const char *pattern, struct err *err)
{
    _cleanup_strv_ char **found = NULL;
    _cleanup_close_ int context = -1;
    int r = dir_open(dir, "context", &context, err);

    if (r >= 0)
        r = sources_match(context, pattern, &found, err);
    for (char **f = found; r >= 0 && f && *f; f++)
        r = contents_of(context, *f, *sources_name(*f) ? sources_name(*f) : ".", add_bytes, k->d,
                        err);
    return r;
}

void key_end(struct key *k, char ret[static DIGEST_MAX])
{
    digest_end(k->d, ret);
    k->d = NULL;
}
