#include "lib/base/strv.h"

#include <stdint.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/xalloc.h"

enum { NEAREST_WORD_MAX = 64 };

char **strv_free(char **v)
{
    if (v)
        for (char **p = v; *p; p++)
            free(*p);
    free(v);
    return NULL;
}

size_t strv_len(char *const *v)
{
    size_t n = 0;

    while (v && v[n])
        n++;
    return n;
}

void strv_push(char ***v, char *owned)
{
    size_t n = strv_len(*v);

    *v = xreallocarray(*v, n + 2, sizeof(char *));
    (*v)[n] = owned;
    (*v)[n + 1] = NULL;
}

void strv_add(char ***v, const char *s)
{
    strv_push(v, xstrdup(s));
}

char **strv_copy(char *const *v)
{
    size_t n = strv_len(v);
    char **copy = xcalloc(n + 1, sizeof(char *));

    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(v[i]);
    return copy;
}

bool strv_equal(char *const *a, char *const *b)
{
    size_t n = strv_len(a);

    if (n != strv_len(b))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!STREQ(a[i], b[i]))
            return false;
    return true;
}

bool strv_contains(char *const *v, const char *s)
{
    for (; v && *v; v++)
        if (STREQ(*v, s))
            return true;
    return false;
}

char *strv_join(char *const *v, const char *sep)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SIZE_MAX - 1);

    for (size_t i = 0; v && v[i]; i++)
        if ((i && buf_append_str(&b, sep) < 0) || buf_append_str(&b, v[i]) < 0)
            break;
    return buf_steal(&b);
}

static size_t strv_env_key_len(const char *entry)
{
    return strcspn(entry, "=");
}

void strv_env_set(char ***env, const char *key, const char *value)
{
    char *entry = xasprintf("%s=%s", key, value);
    size_t klen = strlen(key);

    for (char **p = *env; p && *p; p++) {
        if (strv_env_key_len(*p) == klen && memcmp(*p, key, klen) == 0) {
            free(*p);
            *p = entry;
            return;
        }
    }
    strv_push(env, entry);
}

const char *strv_env_get(char *const *env, const char *key)
{
    size_t klen = strlen(key);

    for (; env && *env; env++)
        if (strv_env_key_len(*env) == klen && memcmp(*env, key, klen) == 0 && (*env)[klen] == '=')
            return *env + klen + 1;
    return NULL;
}

/* ---- merging environments ---- */

struct env_entry {
    char *text;
    size_t at; /* in the sequence of all arrays */
};

static int strv_compare_keys(const char *a, const char *b)
{
    while (*a == *b && *a != '=') {
        a++;
        b++;
    }
    return (*a == '=' ? 0 : (unsigned char)*a) - (*b == '=' ? 0 : (unsigned char)*b);
}

static int strv_by_key(const void *a, const void *b)
{
    const struct env_entry *x = a, *y = b;
    int r = strv_compare_keys(x->text, y->text);

    return r ? r : (x->at > y->at) - (x->at < y->at);
}

static size_t strv_collect_entries(char *const *const *layers, size_t n, struct env_entry *ret)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        for (char *const *v = layers[i]; v && *v; v++)
            if (strchr(*v, '=')) {
                ret[count] = (struct env_entry){*v, count};
                count++;
            }
    return count;
}

char **strv_env_merge(char *const *const *layers, size_t n)
{
    size_t max = 0, count, out = 0;
    _cleanup_free_ struct env_entry *e = NULL;
    char **env;

    for (size_t i = 0; i < n; i++)
        max += strv_len(layers[i]);
    e = xcalloc(max + 1, sizeof(*e));
    env = xcalloc(max + 1, sizeof(*env));
    count = strv_collect_entries(layers, n, e);
    qsort(e, count, sizeof(*e), strv_by_key);
    for (size_t i = 0, first; i < count; i++) {
        first = e[i].at;
        while (i + 1 < count && strv_compare_keys(e[i].text, e[i + 1].text) == 0)
            i++;
        env[first] = e[i].text;
    }
    for (size_t i = 0; i < count; i++)
        if (env[i])
            env[out++] = env[i];
    env[out] = NULL;
    return env;
}

/* ---- arrays that grow ---- */

void strv_list_push(struct strv_list *l, char *s)
{
    if (l->n + 2 > l->room) {
        l->room = MAX(l->room * 2, (size_t)16);
        l->v = xreallocarray(l->v, l->room, sizeof(*l->v));
    }
    l->v[l->n++] = s;
    l->v[l->n] = NULL;
}

/* Edit distance with adjacent transpositions counted once (optimal string alignment). */
static size_t strv_edit_distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    size_t rows[3][NEAREST_WORD_MAX + 1];
    size_t *before = rows[0], *prev = rows[1], *cur = rows[2];

    for (size_t j = 0; j <= lb; j++)
        prev[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t *spare;

        cur[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = prev[j - 1] + (a[i - 1] != b[j - 1]);

            best = MIN(best, prev[j] + 1);
            best = MIN(best, cur[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, before[j - 2] + 1);
            cur[j] = best;
        }
        spare = before;
        before = prev;
        prev = cur;
        cur = spare;
    }
    return prev[lb];
}

static bool strv_is_swapped(const char *a, const char *b)
{
    return strlen(a) == 2 && strlen(b) == 2 && a[0] == b[1] && a[1] == b[0];
}

const char *strv_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    /* One mistake in three letters, at least one. A more distant word misleads. */
    size_t best_distance = MAX(strlen(word) / 3, (size_t)1) + 1;

    if (strlen(word) > NEAREST_WORD_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d;

        if (strlen(candidates[i]) > NEAREST_WORD_MAX)
            continue;
        d = strv_edit_distance(word, candidates[i]);
        if (strlen(word) <= 2 && *word != *candidates[i] && !strv_is_swapped(word, candidates[i]))
            continue; /* half of the word is wrong */
        if (d < best_distance && d < strlen(candidates[i])) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}

void strv_pop(char **v)
{
    char **end = v;

    while (end && *end)
        end++;
    if (end == v)
        return;
    free(end[-1]);
    end[-1] = NULL;
}
