/*
 * The file holds sorted records of a fixed size, so that a look-up is a binary search in the file
 * as it was read. The folder is private to the user, so the content is trusted; a file with an
 * unknown form is ignored.
 */
#include "cli/digests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { RECORDS_MAX = 100000, CONTEXTS_MAX = 64, HEX = BLAKE2B_HEX - 1 };
#define FOLDER "digests"
#define MAGIC "ripcord-digests1"
/* A tick is at most 10 ms, but some file systems count in seconds. */
#define QUIET (2 * USEC_PER_SEC)

struct record {
    uint64_t dev, ino, size, mtime, ctime; /* times in ns */
    char hex[HEX];
};

struct digests {
    char *path;     /* owned: the folder of the cache files */
    char name[40];  /* file name of this context */
    char *text;     /* owned: content of the file, or NULL */
    size_t n_known; /* number of records in text */
    struct record *seen;
    size_t n_seen;
    bool news; /* digests_add() stored a record */
};

static uint64_t digests_ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

static void digests_fill(struct record *r, const struct stat *st)
{
    *r = (struct record){.dev = st->st_dev,
                         .ino = st->st_ino,
                         .size = (uint64_t)st->st_size,
                         .mtime = digests_ns(&st->st_mtim),
                         .ctime = digests_ns(&st->st_ctim)};
}

static int digests_by_file(const void *a, const void *b)
{
    const struct record *x = a, *y = b;

    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return x->ino == y->ino ? 0 : x->ino < y->ino ? -1 : 1;
}

/* The records follow the magic, whose length keeps them aligned. */
static const struct record *digests_known(const struct digests *d)
{
    return (const struct record *)(const void *)(d->text + strlen(MAGIC));
}

static void digests_read_known(struct digests *d)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", d->path, d->name);
    size_t len, head = strlen(MAGIC);

    if (file_read(AT_FDCWD, path, head + RECORDS_MAX * sizeof(struct record), &d->text, &len,
                  NULL) < 0)
        return;
    if (len >= head && memcmp(d->text, MAGIC, head) == 0 &&
        (len - head) % sizeof(struct record) == 0)
        d->n_known = (len - head) / sizeof(struct record);
}

struct digests *digests_open(const char *state, const struct stat *context)
{
    struct digests *d = xnew0(struct digests);

    d->path = xasprintf("%s/" FOLDER, state);
    snprintf(d->name, sizeof(d->name), "%llx-%llx", (unsigned long long)context->st_dev,
             (unsigned long long)context->st_ino);
    digests_read_known(d);
    return d;
}

void digests_free(struct digests *d)
{
    if (!d)
        return;
    free(d->path);
    free(d->text);
    free(d->seen);
    free(d);
}

static void digests_see(struct digests *d, const struct record *r)
{
    if (d->n_seen == RECORDS_MAX)
        return;
    if ((d->n_seen & (d->n_seen - 1)) == 0) /* the allocated size is the next power of two */
        d->seen = xreallocarray(d->seen, d->n_seen ? 2 * d->n_seen : 1, sizeof(*r));
    d->seen[d->n_seen++] = *r;
}

bool digests_find(struct digests *d, const struct stat *st,
                  char ret[static DIGEST_CONTEXT_VALUE_MAX])
{
    char hex[BLAKE2B_HEX] = "", value[DIGEST_CONTEXT_VALUE_MAX];
    const struct record *found;
    struct record r;

    digests_fill(&r, st);
    found =
        d->n_known ? bsearch(&r, digests_known(d), d->n_known, sizeof(r), digests_by_file) : NULL;
    if (!found || memcmp(found, &r, offsetof(struct record, hex)) != 0)
        return false;
    memcpy(hex, found->hex, HEX);
    digest_context_format(r.size, hex, value);
    if (!digest_context_digits(value))
        return false;
    digests_see(d, found);
    memcpy(ret, value, sizeof(value));
    return true;
}

void digests_add(struct digests *d, const struct stat *st, const char *value)
{
    uint64_t last = MAX(digests_ns(&st->st_mtim), digests_ns(&st->st_ctim)) / 1000;
    const char *hex = digest_context_digits(value);
    struct record r;

    if (!hex || last + QUIET > time_wall() || strtoull(value, NULL, 10) != (uint64_t)st->st_size)
        return;
    digests_fill(&r, st);
    memcpy(r.hex, hex, HEX);
    digests_see(d, &r);
    d->news = true;
}

/* ---- saving ---- */

static int digests_any_name(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Removes the file of the least recently built context when there are too many. */
static void digests_trim(int dir)
{
    struct dirent **names = NULL;
    uint64_t oldest = UINT64_MAX;
    int n = scandirat(dir, ".", &names, digests_any_name, NULL), which = 0;
    struct stat st;

    for (int i = 0; i < n; i++)
        if (fstatat(dir, names[i]->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            digests_ns(&st.st_mtim) < oldest) {
            oldest = digests_ns(&st.st_mtim);
            which = i;
        }
    if (n > CONTEXTS_MAX)
        unlinkat(dir, names[which]->d_name, 0);
    while (n-- > 0)
        free(names[n]);
    free(names);
}

static void digests_write_known(const struct digests *d)
{
    _cleanup_close_ int dir = -1;
    size_t len = strlen(MAGIC) + d->n_known * sizeof(struct record);

    (void)mkdir(d->path, 0700);
    dir = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && file_replace_shared(dir, d->name, d->text, len, 0600, NULL) >= 0)
        digests_trim(dir);
}

void digests_save(struct digests *d)
{
    size_t head = strlen(MAGIC), len = d->n_seen * sizeof(struct record);

    if (d->news || d->n_seen < d->n_known) {
        free(d->text);
        d->text = xmalloc(head + len);
        memcpy(d->text, MAGIC, head);
        if (len) {
            qsort(d->seen, d->n_seen, sizeof(*d->seen), digests_by_file);
            memcpy(d->text + head, d->seen, len);
        }
        d->n_known = d->n_seen;
        digests_write_known(d);
    }
    d->n_seen = 0;
    d->news = false;
}
