#include "image/build/filter.h"

#include <string.h>

#include "image/build/sources.h"
#include "image/dockerfile/ignore.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

struct filter {
    struct ignore *exclude; /* owned, or NULL */
    struct ignore *include; /* owned; NULL: include all */
    char *lead;             /* owned: the part of `include` before its first pattern, or "" */
};

void filter_free(struct filter *f)
{
    if (!f)
        return;
    ignore_free(f->exclude);
    ignore_free(f->include);
    free(f->lead);
    free(f);
}

/* ---- use ---- */

static bool filter_is_at_or_below(const char *path, const char *folder)
{
    size_t len = strlen(folder);

    return len == 0 || (strncmp(path, folder, len) == 0 && (!path[len] || path[len] == '/'));
}

/* Lets a walk for one file of a large tree skip all other folders. */
static bool filter_is_on_the_way(const struct filter *f, const char *path)
{
    return filter_is_at_or_below(path, f->lead) || filter_is_at_or_below(f->lead, path);
}

enum filter_answer filter_ask(const struct filter *f, const char *path)
{
    if (!f)
        return FILTER_TAKE;
    if (f->include && !filter_is_on_the_way(f, path))
        return FILTER_SKIP;
    if (f->exclude && ignore_matches(f->exclude, path))
        return ignore_has_exceptions(f->exclude) ? FILTER_LOOK : FILTER_SKIP;
    return !f->include || ignore_matches(f->include, path) ? FILTER_TAKE : FILTER_LOOK;
}

/* ---- construction ---- */

/* The parts of a path with "." and ".." resolved; NULL for an empty path. */
static char **filter_parts_of(const char *path)
{
    _cleanup_free_ char *copy = xstrdup(path);
    char **parts = NULL;

    for (char *rest = copy, *part; (part = strsep(&rest, "/"));) {
        if (STREQ(part, ".."))
            strv_pop(parts);
        else if (*part && !STREQ(part, "."))
            strv_add(&parts, part);
    }
    return parts;
}

static char *filter_lead_of(char *const *parts)
{
    _cleanup_strv_ char **plain = NULL;

    for (; parts && *parts && !sources_is_pattern(*parts); parts++)
        strv_add(&plain, *parts);
    return plain ? strv_join(plain, "/") : xstrdup("");
}

/* include: the parts of its pattern; NULL includes all. */
static int filter_new(char *const *include, char *const *exclude, struct filter **ret,
                      struct err *err)
{
    _cleanup_(filter_freep) struct filter *f = xnew0(struct filter);
    _cleanup_strv_ char **list = NULL;
    int r;

    f->lead = filter_lead_of(include);
    if (exclude) {
        r = ignore_from_list(exclude, &f->exclude, err);
        if (r < 0)
            return r;
    }
    if (include && *include) {
        strv_push(&list, strv_join(include, "/"));
        r = ignore_from_list(list, &f->include, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(f);
    return 0;
}

int filter_check(char *const *exclude, struct err *err)
{
    _cleanup_(filter_freep) struct filter *f = NULL;

    return filter_new(NULL, exclude, &f, err);
}

/* ---- search ---- */

/* A plain path must exist; a pattern may match nothing. */
static int filter_check_exists(int root, const char *folder, char *const *parts, struct err *err)
{
    _cleanup_free_ char *below = strv_join(parts, "/"), *path = xasprintf("%s/%s", folder, below);
    _cleanup_close_ int fd = -1;

    return sources_is_pattern(path) ? 0 : sources_open_path(root, path, &fd, err);
}

static int filter_find_below(int root, const char *source, char *const *exclude, char ***ret,
                             struct filter **ret_filter, struct err *err)
{
    _cleanup_(filter_freep) struct filter *f = NULL;
    const char *pivot = strstr(source, "/./");
    _cleanup_free_ char *folder = pivot ? xstrndup(source, (size_t)(pivot - source)) : xstrdup("");
    _cleanup_strv_ char **parts = filter_parts_of(pivot ? pivot + 3 : source);
    int r;

    r = filter_check_exists(root, folder, parts, err);
    if (r < 0)
        return r;
    r = filter_new(parts, exclude, &f, err);
    if (r < 0)
        return r;
    r = sources_match(root, folder, ret, err);
    if (r < 0)
        return r;
    *ret_filter = TAKE_PTR(f);
    return 0;
}

int filter_find(int root, const char *source, const struct filter_want *want, char ***ret,
                struct filter **ret_filter, struct err *err)
{
    _cleanup_(filter_freep) struct filter *f = NULL;
    int r;

    if (want->parents)
        return filter_find_below(root, source, want->exclude, ret, ret_filter, err);
    if (want->exclude) {
        r = filter_new(NULL, want->exclude, &f, err);
        if (r < 0)
            return r;
    }
    r = sources_match(root, source, ret, err);
    if (r < 0)
        return r;
    *ret_filter = TAKE_PTR(f);
    return 0;
}
