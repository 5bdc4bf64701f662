/* Cgroups of removed sandboxes: they wait, are told of, can be reclaimed, and go. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/engine/native/cgroup-reaper.h"
#include "daemon/engine/native/native.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/os/cgroup.h"
#include "tap.h"

static const char *root(void)
{
    static char id[17];

    if (!*id)
        snprintf(id, sizeof(id), "%016x", (unsigned)getpid());
    return id;
}

/* The folders of a sandbox without processes; false where none may be made. */
static bool make_rest(const char *id)
{
    struct cgroup c;
    bool made;

    if (cgroup_open(&c, NATIVE_CGROUP_PARENT, root(), id, NULL) < 0)
        return false;
    made = !STREQ(c.ops->name, "none");
    cgroup_close(&c);
    return made;
}

static bool is_there(const char *id)
{
    _cleanup_strv_ char **ids = NULL;

    return cgroup_list(NATIVE_CGROUP_PARENT, root(), &ids, NULL) >= 0 && strv_contains(ids, id);
}

static bool waits(struct cgroup_reaper *b, const char *id)
{
    _cleanup_strv_ char **ids = NULL;

    cgroup_reaper_list(b, &ids);
    return strv_contains(ids, id);
}

static bool goes(const char *id)
{
    struct deadline by = deadline_in(30 * USEC_PER_SEC);

    while (is_there(id) && !deadline_passed(&by))
        usleep(1000);
    return !is_there(id);
}

TEST(what_is_left_goes)
{
    struct cgroup_reaper *b = cgroup_reaper_new(root());

    if (!make_rest("a") || !make_rest("b"))
        SKIP("no cgroup may be made here");
    cgroup_reaper_add(b, "a");
    cgroup_reaper_add(b, "b");
    CHECK(goes("a") && goes("b"));
    cgroup_reaper_free(b);
}

/* Each that comes puts the sweeping off: by then it has been seen waiting. */
TEST(what_waits_is_told_and_can_be_reclaimed)
{
    struct cgroup_reaper *b = cgroup_reaper_new(root());
    struct deadline by = deadline_in(30 * USEC_PER_SEC);
    bool kept = false;

    if (!make_rest("mine"))
        SKIP("no cgroup may be made here");
    while (!kept && !deadline_passed(&by)) {
        make_rest("mine");
        cgroup_reaper_add(b, "mine");
        kept = waits(b, "mine");
        cgroup_reaper_reclaim(b, "mine");
        kept = kept && !waits(b, "mine") && is_there("mine");
    }
    CHECK(kept);
    make_rest("next");
    cgroup_reaper_add(b, "next");
    CHECK(goes("next") && is_there("mine"));
    cgroup_reaper_add(b, "mine");
    cgroup_reaper_free(b);
    CHECK(!is_there("mine"));
}

TEST(the_end_sweeps_all_at_once)
{
    struct cgroup_reaper *b = cgroup_reaper_new(root());
    char id[8];

    if (!make_rest("0"))
        SKIP("no cgroup may be made here");
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "%d", i);
        CHECK(make_rest(id));
        cgroup_reaper_add(b, id);
    }
    cgroup_reaper_free(b);
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "%d", i);
        CHECK(!is_there(id));
    }
    cgroup_remove_root(NATIVE_CGROUP_PARENT, root());
}
