/* Cgroups of removed sandboxes: they wait, are listed, can be reclaimed, and are removed. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/engine/native/cgroup-reaper.h"
#include "daemon/engine/native/cgroups.h"
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

static const struct native_cgroups *cgroups(void)
{
    static char *parents[] = {"ripcord", NULL};
    static struct native_cgroups c = {.parents = parents};

    c.root_id = (char *)root();
    return &c;
}

/* The folders of a sandbox without processes; false where none may be made. */
static bool make_rest(const char *id)
{
    struct cgroup c;
    bool made;

    if (cgroup_open(&c, "ripcord", root(), id, NULL) < 0)
        return false;
    made = !STREQ(c.ops->name, "none");
    cgroup_close(&c);
    return made;
}

static bool is_there(const char *id)
{
    _cleanup_strv_ char **ids = NULL;

    return cgroup_list("ripcord", root(), &ids, NULL) >= 0 && strv_contains(ids, id);
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

TEST(empty_cgroups_are_removed)
{
    struct cgroup_reaper *b = cgroup_reaper_new(cgroups());

    if (!make_rest("a") || !make_rest("b"))
        SKIP("no cgroup may be made here");
    cgroup_reaper_add(b, "a");
    cgroup_reaper_add(b, "b");
    CHECK(goes("a") && goes("b"));
    cgroup_reaper_free(b);
}

/* Each that comes puts the sweeping off: by then it has been seen waiting. */
TEST(queued_ids_are_listed_and_can_be_reclaimed)
{
    struct cgroup_reaper *b = cgroup_reaper_new(cgroups());
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

TEST(free_removes_the_whole_queue)
{
    struct cgroup_reaper *b = cgroup_reaper_new(cgroups());
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
    cgroup_remove_root("ripcord", root());
}
