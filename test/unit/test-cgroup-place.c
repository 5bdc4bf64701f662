/* Where cgroups may be made, decided on folders of plain files that stand for a v2 tree. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/limits.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup-place.h"
#include "lib/os/rmtree.h"
#include "tap.h"

enum { OTHER_UID = 12345 };
#define ALL_LIMITS (LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS)
#define ALL_CONTROLLERS "cpuset cpu io memory hugetlb pids\n"

static char tree[64];
static struct cgroup_place place;

static void put(const char *folder, const char *file, const char *text)
{
    _cleanup_free_ char *path = xasprintf("%s%s/%s", tree, folder, file);
    FILE *f = fopen(path, "we");

    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static void make(const char *folder, const char *controllers, const char *processes)
{
    _cleanup_free_ char *path = xasprintf("%s%s", tree, folder);

    mkdir(path, 0755);
    put(folder, "cgroup.controllers", controllers);
    put(folder, "cgroup.subtree_control", "");
    put(folder, "cgroup.procs", processes);
    put(folder, "cgroup.type", "domain\n");
}

static bool mark(const char *folder)
{
    _cleanup_free_ char *path = xasprintf("%s%s", tree, folder);

    return setxattr(path, "user.delegate", "1", 1, 0) == 0;
}

static bool give(const char *folder, uid_t uid)
{
    _cleanup_free_ char *path = xasprintf("%s%s", tree, folder);

    return chown(path, uid, (gid_t)-1) == 0;
}

/* The top, and /system.slice with a unit in it. */
static void grow(bool machine)
{
    snprintf(tree, sizeof(tree), "/tmp/ripcord-place-XXXXXX");
    if (!mkdtemp(tree))
        abort();
    make("", ALL_CONTROLLERS, machine ? "1\n2\n" : "");
    if (machine) {
        _cleanup_free_ char *type = xasprintf("%s/cgroup.type", tree);

        unlink(type);
    }
    make("/ripcord", ALL_CONTROLLERS, "");
    make("/system.slice", ALL_CONTROLLERS, "");
    make("/system.slice/x.service", ALL_CONTROLLERS, "");
    make("/system.slice/x.service/supervisor", ALL_CONTROLLERS, "77\n");
    make("/system.slice/ripcord.service", ALL_CONTROLLERS, "77\n");
}

static const char *find(const char *own, bool take)
{
    cgroup_place_done(&place);
    cgroup_place_find_at(tree, own, getuid(), take, &place);
    return place.parent ? place.parent : place.why;
}

static bool file_is(const char *folder, const char *file, const char *text)
{
    _cleanup_free_ char *path = xasprintf("%s%s/%s", tree, folder, file), *have = NULL;

    return file_read(AT_FDCWD, path, 4096, &have, NULL, NULL) >= 0 && strcmp(have, text) == 0;
}

static bool exists(const char *folder)
{
    _cleanup_free_ char *path = xasprintf("%s%s", tree, folder);

    return access(path, F_OK) == 0;
}

static void fell(void)
{
    rmtree(AT_FDCWD, tree, NULL);
    cgroup_place_done(&place);
}

TEST(on_a_machine_the_top_is_used_where_nothing_was_delegated)
{
    grow(true);
    CHECK_STR(find("/system.slice/x.service", false), "ripcord");
    CHECK(file_is("", "cgroup.subtree_control", ""));
    CHECK_STR(find("/system.slice/x.service", true), "ripcord");
    CHECK(file_is("", "cgroup.subtree_control", "+memory +cpu +pids"));
    CHECK(place.missing == 0 && !place.why);
    CHECK_STR(place.version, "v2");
    fell();
}

TEST(a_delegated_unit_is_used)
{
    grow(true);
    if (!mark("/system.slice/x.service"))
        SKIP("the file system of /tmp has no attributes");
    CHECK_STR(find("/system.slice/x.service", true), "system.slice/x.service");
    CHECK_STR(find("/system.slice/x.service/supervisor", true), "system.slice/x.service");
    CHECK(file_is("/system.slice/x.service", "cgroup.subtree_control", "+memory +cpu +pids"));
    CHECK(file_is("", "cgroup.subtree_control", ""));
    fell();
}

TEST(our_unit_without_a_subgroup_keeps_its_cgroup_free_and_its_limits)
{
    grow(true);
    if (!mark("/system.slice/ripcord.service"))
        SKIP("the file system of /tmp has no attributes");
    put("/system.slice/ripcord.service", "memory.max", "123456\n");
    /* The kernel makes the files of a new folder. */
    make("/system.slice/ripcord-sandboxes", ALL_CONTROLLERS, "");
    put("/system.slice/ripcord-sandboxes", "memory.max", "max\n");
    CHECK_STR(find("/system.slice/ripcord.service", true), "system.slice/ripcord-sandboxes");
    CHECK(file_is("/system.slice/ripcord-sandboxes", "memory.max", "123456\n"));
    CHECK(file_is("/system.slice/ripcord.service", "cgroup.subtree_control", ""));
    fell();
}

TEST(a_container_s_top_is_used_only_if_its_processes_are_in_reach)
{
    grow(false);
    CHECK_STR(find("/", false), "ripcord");
    CHECK_STR(find("/supervisor", false), "ripcord");
    CHECK_STR(find("/system.slice/x.service", false), "ripcord"); /* systemd runs in it */
    put("", "cgroup.procs", "1\n");
    CHECK_STR(find("/", false), "ripcord");
    CHECK_STR(find("/system.slice/x.service", false),
              "cgroup '/system.slice/x.service' was not delegated to the daemon");
    CHECK(place.missing == ALL_LIMITS && place.hint);
    CHECK_STR(place.version, "none");
    fell();
}

TEST(processes_of_another_pid_namespace_are_not_left_behind)
{
    grow(false);
    put("", "cgroup.procs", "1\n0\n12\n");
    CHECK(strstr(find("/", true), "cannot move the processes of cgroup '/'"));
    CHECK(place.missing == ALL_LIMITS && !place.parent);
    CHECK(file_is("", "cgroup.subtree_control", ""));
    CHECK(!exists("/supervisor"));
    fell();
}

TEST(an_ordinary_user_gets_what_belongs_to_this_user)
{
    grow(true);
    if (!give("", OTHER_UID))
        SKIP("only root can give folders to others");
    CHECK_STR(find("/system.slice/x.service", true), "system.slice/x.service");
    CHECK_STR(find("/system.slice/x.service/supervisor", true), "system.slice/x.service");
    give("/system.slice/x.service", OTHER_UID);
    CHECK(strstr(find("/system.slice/x.service", true), "was not delegated"));
    CHECK_STR(find("/system.slice/x.service/supervisor", false),
              "system.slice/x.service/supervisor");
    CHECK(strstr(find("/not/there", true), "was not delegated"));
    fell();
}

TEST(missing_controllers_are_named)
{
    grow(true);
    put("", "cgroup.controllers", "cpuset io pids\n");
    CHECK_STR(find("/", true), "ripcord");
    CHECK(place.missing == (LIMIT_MEMORY | LIMIT_CPUS));
    CHECK_STR(place.why, "cgroup '/' has no controller memory cpu");
    CHECK(file_is("", "cgroup.subtree_control", "+pids"));
    put("", "cgroup.controllers", "\n");
    CHECK_STR(find("/", true), "ripcord");
    CHECK(place.missing == ALL_LIMITS);
    CHECK_STR(place.version, "v2"); /* sandboxes can still be paused */
    fell();
}

TEST(a_threaded_subtree_is_refused)
{
    grow(false);
    put("", "cgroup.type", "domain threaded\n");
    CHECK_STR(find("/", true), "cgroup '/' is threaded, so it cannot limit memory");
    CHECK(file_is("", "cgroup.subtree_control", ""));
    fell();
}

TEST(a_cgroup_outside_of_the_mount_is_refused)
{
    grow(true);
    CHECK(strstr(find("/../other", true), "outside of what is mounted"));
    fell();
}
