/*
 * The guards for paths while a sandbox is built. For each guard, the test shows that it holds and
 * that the test fails without it: a shim built for this test leaves out the guards that a sandbox's
 * variable names (lib/base/guard.h). The target outside is a folder of the test that is open to
 * everybody, so only the guard protects it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "shim-fixture.h"
#include "tap.h"

#define LIMIT "user/max_user_namespaces"

static char canary[] = "/tmp/ripcord-canary-XXXXXX";

static bool exists(const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", canary, name);

    return access(path, F_OK) == 0;
}

static bool put(const char *name, const char *text)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", canary, name);

    return file_replace(AT_FDCWD, path, text, strlen(text), 0666, false, NULL) >= 0 &&
           chmod(path, 0666) == 0;
}

static bool says(const char *name, const char *want)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", canary, name), *text = NULL;

    return file_read(AT_FDCWD, path, 64, &text, NULL, NULL) >= 0 && STREQ(text, want);
}

static bool link_to_canary(const struct box *b, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", b->dir, name);

    rmdir(path); /* of the skeleton, empty */
    return symlink(canary, path) == 0;
}

static void add_mount(struct box *b, const char *source, const char *target)
{
    struct plan *p = &b->plan;

    if (!p->mounts)
        p->mounts = xcalloc(2, sizeof(*p->mounts));
    p->mounts[p->n_mounts++] = (struct plan_mount){
        .source = *source == '/' ? xstrdup(source) : xasprintf("%s/%s", b->dir, source),
        .target = xstrdup(target)};
}

/* ---- before the start ---- */

/* A7: the image has a link to the machine where the shim makes a folder and mounts. */
static bool link_in_root(struct box *b)
{
    add_mount(b, canary, "/srv/made");
    return link_to_canary(b, "lower/srv");
}

/* A2: the same in a folder that another process may change too. */
static bool link_in_mount(struct box *b)
{
    _cleanup_free_ char *shared = xasprintf("%s/shared", b->dir);

    add_mount(b, shared, "/v");
    add_mount(b, shared, "/v/a/made");
    return mkdir(shared, 0755) == 0 && link_to_canary(b, "shared/a");
}

/* A6: the image has a folder of its own where the shim writes a limit. */
static bool link_in_proc(struct box *b)
{
    _cleanup_free_ char *dir = xasprintf("%s/user", canary);

    return (mkdir(dir, 0777) == 0 || errno == EEXIST) && put(LIMIT, "host") &&
           link_to_canary(b, "lower/proc/sys");
}

/* C5: a mount source was a folder when it was checked and is a link now. */
static bool link_as_source(struct box *b)
{
    add_mount(b, "source", "/v");
    return put("secret", "host") && link_to_canary(b, "source");
}

/* ... or another folder. */
static bool other_source(struct box *b)
{
    add_mount(b, canary, "/v");
    b->plan.mounts[0].ino = 1;
    return put("secret", "host");
}

/* C6: a file that other programs see too. */
static bool shared_folder(struct box *b)
{
    add_mount(b, canary, "/v");
    b->plan.mounts[0].read_only = true;
    return put("secret", "host");
}

/* ---- after the start: did the attack work? ---- */

static bool made_outside(struct box *b _unused_)
{
    return exists("made");
}

static bool limit_written(struct box *b _unused_)
{
    return !says(LIMIT, "host");
}

static bool output_is_host(struct box *b, const char *script)
{
    struct box_result r;
    bool same;

    if (b->err.code)
        return false;
    box_run(b, "a1", script, &r);
    same = r.out && STREQ(r.out, "host");
    box_result_done(&r);
    return same;
}

static bool secret_seen(struct box *b)
{
    return output_is_host(b, "cat /v/secret");
}

static bool linked(struct box *b)
{
    return output_is_host(b, "ln /v/secret /v/linked && cat /v/linked");
}

/* clang-format off */
static const struct attempt {
    const char *guard;
    bool (*prepare)(struct box *b);
    bool (*breached)(struct box *b);
} attempts[] = {
    {"targets",    link_in_root,   made_outside},
    {"targets",    link_in_mount,  made_outside},
    {"own procfs", link_in_proc,   limit_written},
    {"sources",    link_as_source, secret_seen},
    {"sources",    other_source,   secret_seen},
    {"read-only",  shared_folder,  linked},
};
/* clang-format on */

static void clean(void)
{
    static const char *const names[] = {"made", LIMIT, "user", "linked", "secret"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", canary, names[i]);

        remove(path);
    }
}

/* 1: the attack worked; 0: it did not; -1: it could not be tried. */
static int breached(const struct attempt *a, const char *without)
{
    _cleanup_box_ struct box b = BOX_EMPTY;
    int r = -1;

    box_init(&b);
    strv_env_set(&b.plan.env, "RIPCORD_WITHOUT", without);
    if (a->prepare(&b)) {
        if (box_up(&b) < 0)
            printf("# without '%s': %s\n", without, b.err.msg);
        r = a->breached(&b);
    }
    clean();
    return r;
}

TEST(each_guard_stands_and_would_be_missed)
{
    bool made;

    if (box_unavailable())
        SKIP(box_unavailable());
    made = mkdtemp(canary) && chmod(canary, 0777) == 0;
    CHECK(made);
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        printf("# %s, %zu\n", attempts[i].guard, i);
        CHECK(breached(&attempts[i], "") == 0);
        CHECK(breached(&attempts[i], attempts[i].guard) == 1);
    }
    CHECK(rmdir(canary) == 0);
}
