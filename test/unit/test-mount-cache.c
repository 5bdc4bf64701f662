/* Cache mounts of builds: slots and locks, sizes, removal. */
#include "image/archive/mount-cache.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

static const struct confined_ids own = {.kind = CONFINED_OWN};
static struct images s = IMAGES_INIT;
static struct err err;

static int forget(int r)
{
    err_done(&err);
    err = (struct err)ERR_INIT;
    return r;
}

static void fresh(void)
{
    static char folder[] = "/tmp/test-mount-cache-XXXXXX";

    forget(0);
    images_done(&s);
    rmtree(AT_FDCWD, folder, NULL);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    if (!mkdtemp(folder) || images_open(folder, &s, &err) < 0)
        abort();
}

/* Creates a mount that was last used `ago` seconds ago, with a file of `bytes` bytes. */
static void make(const char *id, size_t bytes, time_t ago)
{
    struct timespec at[2] = {{.tv_sec = (time_t)(time_wall() / USEC_PER_SEC) - ago}};
    _cleanup_free_ char *data = xmalloc(bytes), *name = NULL;
    struct mount_cache c;

    memset(data, 'x', bytes);
    at[1] = at[0];
    if (mount_cache_take(&s, id, MOUNT_CACHE_SHARED, &c, &err) < 0)
        abort();
    name = xasprintf("%u", c.slot);
    if (dir_make_all(c.dir, name, 0755, &err) < 0 ||
        file_replace(c.dir, "0/data", data, bytes, 0644, false, &err) < 0 ||
        utimensat(c.dir, "id", at, 0) < 0)
        abort();
    mount_cache_done(&c);
}

/* The entry of a mount in the list, new; NULL: not in the list. */
static json_t *listed(const char *id)
{
    _cleanup_json_ json_t *doc = NULL;
    json_t *m;
    size_t i;

    if (mount_cache_list(&s, &own, &doc, &err) < 0)
        return NULL;
    json_array_foreach (json_object_get(doc, "mounts"), i, m)
        if (STREQ(json_string_value(json_object_get(m, "id")), id))
            return json_incref(m);
    return NULL;
}

static bool is_there(const char *id)
{
    _cleanup_json_ json_t *m = listed(id);

    return m != NULL;
}

static bool in_use(const char *id)
{
    _cleanup_json_ json_t *m = listed(id);

    return json_is_true(json_object_get(m, "in_use"));
}

static json_int_t bytes_of(const char *id)
{
    _cleanup_json_ json_t *m = listed(id);

    return json_integer_value(json_object_get(m, "bytes"));
}

static json_int_t removed_by(json_t *doc)
{
    json_int_t n = json_integer_value(json_object_get(doc, "removed"));

    json_decref(doc);
    return n;
}

TEST(slots)
{
    struct mount_cache a = MOUNT_CACHE_INIT, b = MOUNT_CACHE_INIT, c = MOUNT_CACHE_INIT;

    fresh();
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_PRIVATE, &a, &err) >= 0);
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_PRIVATE, &b, &err) >= 0);
    CHECK(a.slot == 0 && b.slot == 1);
    mount_cache_done(&a);
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_PRIVATE, &c, &err) >= 0);
    CHECK(c.slot == 0);
    mount_cache_done(&b);
    mount_cache_done(&c);
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_SHARED, &a, &err) >= 0);
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_SHARED, &b, &err) >= 0);
    CHECK(a.slot == 0 && b.slot == 0);
    mount_cache_done(&a);
    mount_cache_done(&b);
}

TEST(long_ids_are_refused)
{
    _cleanup_free_ char *id = xmalloc(MOUNT_CACHE_ID_MAX + 2);
    struct mount_cache c;

    fresh();
    memset(id, 'x', MOUNT_CACHE_ID_MAX + 1);
    id[MOUNT_CACHE_ID_MAX + 1] = '\0';
    CHECK(forget(mount_cache_take(&s, id, MOUNT_CACHE_SHARED, &c, &err)) == -ERR_LIMIT);
}

TEST(mounts_are_listed_with_their_sizes)
{
    _cleanup_json_ json_t *doc = NULL;
    struct mount_cache c = MOUNT_CACHE_INIT;

    fresh();
    CHECK(mount_cache_list(&s, &own, &doc, &err) >= 0);
    CHECK(json_array_size(json_object_get(doc, "mounts")) == 0);
    make("/root/.cache", 100000, 50);
    CHECK(bytes_of("/root/.cache") >= 100000 && bytes_of("/root/.cache") < 200000);
    CHECK(!in_use("/root/.cache"));
    CHECK(mount_cache_take(&s, "/root/.cache", MOUNT_CACHE_LOCKED, &c, &err) >= 0);
    CHECK(in_use("/root/.cache"));
    mount_cache_done(&c);
    CHECK(!in_use("/root/.cache"));
}

TEST(a_size_is_valid_until_the_next_use)
{
    struct mount_cache c = MOUNT_CACHE_INIT;
    _cleanup_free_ char *data = xmalloc(100000);
    json_int_t before;

    fresh();
    memset(data, 'x', 100000);
    make("x", 10, 50);
    before = bytes_of("x");
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_SHARED, &c, &err) >= 0);
    CHECK(file_replace(c.dir, "0/more", data, 100000, 0644, false, &err) >= 0);
    CHECK(bytes_of("x") >= before + 100000);
    CHECK(unlinkat(c.dir, "0/more", 0) == 0);
    CHECK(bytes_of("x") == before); /* the size of a mount in use is not saved */
    mount_cache_done(&c);
    CHECK(bytes_of("x") == before);
}

TEST(a_mount_is_removed)
{
    struct mount_cache c = MOUNT_CACHE_INIT;
    json_t *doc = NULL;

    fresh();
    make("x", 10, 50);
    make("y", 10, 50);
    CHECK(forget(mount_cache_remove(&s, &own, "z", &doc, &err)) == -ERR_NOT_FOUND);
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_SHARED, &c, &err) >= 0);
    CHECK(forget(mount_cache_remove(&s, &own, "x", &doc, &err)) == -ERR_CONFLICT);
    mount_cache_done(&c);
    CHECK(mount_cache_remove(&s, &own, "x", &doc, &err) >= 0);
    CHECK(removed_by(doc) == 1);
    CHECK(!is_there("x") && is_there("y"));
    CHECK(mount_cache_take(&s, "x", MOUNT_CACHE_SHARED, &c, &err) >= 0);
    CHECK(faccessat(c.dir, "0/data", F_OK, 0) < 0);
    mount_cache_done(&c);
}

TEST(the_longest_unused_are_removed_first)
{
    json_t *doc = NULL;

    fresh();
    make("old", 100000, 300);
    make("older", 100000, 400);
    make("new", 100000, 10);
    CHECK(mount_cache_trim(&s, &own, 400000, 0, &doc, &err) >= 0);
    CHECK(removed_by(doc) == 0);
    CHECK(mount_cache_trim(&s, &own, 250000, 0, &doc, &err) >= 0);
    CHECK(removed_by(doc) == 1);
    CHECK(!is_there("older") && is_there("old") && is_there("new"));
    CHECK(mount_cache_trim(&s, &own, UINT64_MAX, 200, &doc, &err) >= 0);
    CHECK(removed_by(doc) == 1);
    CHECK(!is_there("old") && is_there("new"));
    CHECK(mount_cache_trim(&s, &own, 0, 0, &doc, &err) >= 0);
    CHECK(removed_by(doc) == 1);
    CHECK(!is_there("new"));
}

TEST(used_mounts_stay_at_any_age)
{
    struct mount_cache c = MOUNT_CACHE_INIT;
    struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    json_t *doc = NULL;

    fresh();
    make("new", 100000, 10);
    CHECK(mount_cache_take(&s, "used", MOUNT_CACHE_SHARED, &c, &err) >= 0);
    CHECK(utimensat(c.dir, "id", long_ago, 0) == 0);
    CHECK(mount_cache_trim(&s, &own, 0, 1, &doc, &err) >= 0);
    CHECK(removed_by(doc) == 1);
    CHECK(is_there("used") && !is_there("new"));
    mount_cache_done(&c);
}

TEST(damaged_mounts_are_removed)
{
    json_t *doc = NULL;

    fresh();
    CHECK(dir_make_all(s.dir, "mounts/abc/0", 0755, &err) >= 0);
    CHECK(mount_cache_trim(&s, &own, 0, 0, &doc, &err) >= 0);
    CHECK(removed_by(doc) == 1);
    CHECK(!is_there(""));
}
