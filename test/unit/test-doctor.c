/* The doctor's lines about the machine, and the words for what surrounds us. core/doctor itself is
 * tested through the API (test_api.py) and in containers (test_nested.py). */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/doctor.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-ops.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "lib/os/surroundings.h"
#include "tap.h"

TEST(lines_about_the_machine_are_whole)
{
    const struct engine_config config = {.state_dir = "/nonexistent",
                                         .run_dir = "/nonexistent",
                                         .root_id = "0123456789abcdef",
                                         .libexec_dir = "/nonexistent"};
    struct doctor_report r = DOCTOR_REPORT_INIT;
    struct engine *e = engine_native_ops.make(&config);

    engine_native_ops.doctor(e, true, &r);
    engine_native_ops.close(e);
    CHECK(r.n >= 5);
    for (size_t i = 0; i < r.n; i++) {
        const struct doctor_line *l = &r.lines[i];

        printf("# %-4s %s: %s%s%s\n", doctor_status_name(l->status), l->name, l->detail,
               l->fix ? " | " : "", l->fix ? l->fix : "");
        CHECK(*l->name && *l->detail);
        CHECK((l->fix != NULL) == (l->status != DOCTOR_OK));
    }
    doctor_report_done(&r);
}

TEST(a_line_that_is_ok_needs_no_fix)
{
    _cleanup_json_ json_t *ok = doctor_line_to_json("a", DOCTOR_OK, "fine", "never shown");
    _cleanup_json_ json_t *bad = doctor_line_to_json("a", DOCTOR_FAIL, "\xff", "do this");

    CHECK(json_is_null(json_object_get(ok, "fix")));
    CHECK(STREQ(json_string_value(json_object_get(bad, "fix")), "do this"));
    CHECK(STREQ(json_string_value(json_object_get(bad, "status")), "fail"));
    CHECK(json_string_length(json_object_get(bad, "detail")) > 0);
}

/* ---- what surrounds us: a folder with the files that are looked at ---- */

struct place {
    char dir[64];
    int root;
};

static void place_open(struct place *p)
{
    snprintf(p->dir, sizeof(p->dir), "/tmp/ripcord-surroundings-XXXXXX");
    p->root = mkdtemp(p->dir) ? open(p->dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
}

static void place_close(struct place *p)
{
    rmtree(AT_FDCWD, p->dir, NULL);
    fd_close(p->root);
}

static void place_put(const struct place *p, const char *path, const char *text)
{
    _cleanup_free_ char *folder = xstrndup(path, (size_t)(strrchr(path, '/') - path));
    int fd;

    dir_make_all(p->root, folder, 0755, NULL);
    fd = openat(p->root, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    fd_write_all(fd, text, strlen(text));
    fd_close(fd);
}

/* The fix for `needs` in the place. */
static char *place_fix(const struct place *p, unsigned needs)
{
    char fix[SURROUNDINGS_FIX_MAX];
    struct surroundings s;

    surroundings_look_at(p->root, &s);
    surroundings_fix(&s, needs, "/var/lib/ripcord", fix);
    return xstrdup(fix);
}

#define MOUNTS_PLAIN                                                                               \
    "1 0 0:1 / / rw - ext4 /dev/vda rw\n"                                                          \
    "2 1 0:2 / /proc rw,nosuid - proc proc rw\n"                                                   \
    "3 2 0:3 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n"
#define MOUNTS_MASKED MOUNTS_PLAIN "4 2 0:4 / /proc/acpi ro - tmpfs tmpfs ro\n"

TEST(a_plain_machine_needs_nothing)
{
    _cleanup_(place_close) struct place p;
    struct surroundings s;

    place_open(&p);
    CHECK(p.root >= 0);
    place_put(&p, "proc/self/mountinfo", MOUNTS_PLAIN);
    place_put(&p, "proc/self/status", "Name:\tx\nSeccomp:\t0\n");
    place_put(&p, "proc/self/attr/current", "unconfined\n");
    surroundings_look_at(p.root, &s);
    CHECK(s.container == CONTAINER_NONE && !s.masked_proc && !s.seccomp && !*s.apparmor);
    CHECK(!s.userns_locked && !s.userns_off && !*s.no_namespaces);
}

TEST(a_default_docker_container)
{
    _cleanup_(place_close) struct place p;
    _cleanup_free_ char *fix = NULL;
    struct surroundings s;

    place_open(&p);
    place_put(&p, "proc/self/mountinfo", MOUNTS_MASKED);
    place_put(&p, "proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
    place_put(&p, "proc/self/attr/current", "docker-default (enforce)\n");
    place_put(&p, "run/.keep", "");
    place_put(&p, "./.dockerenv", "");
    surroundings_look_at(p.root, &s);
    CHECK(s.container == CONTAINER_DOCKER && s.masked_proc && s.seccomp);
    CHECK(STREQ(s.apparmor, "docker-default"));
    fix = place_fix(&p, NEED_NAMESPACES | NEED_PROC | NEED_UPPER);
    CHECK(STREQ(fix, "Start the container with --security-opt seccomp=unconfined --security-opt "
                     "apparmor=unconfined --security-opt systempaths=unconfined "
                     "-v ripcord:/var/lib/ripcord."));
}

TEST(a_machine_made_from_an_image_is_not_a_container)
{
    _cleanup_(place_close) struct place p;
    struct surroundings s;

    place_open(&p);
    place_put(&p, "./.dockerenv", "");
    place_put(&p, "proc/2/comm", "kthreadd\n");
    surroundings_look_at(p.root, &s);
    CHECK(s.container == CONTAINER_NONE);
    place_put(&p, "proc/2/comm", "bash\n");
    surroundings_look_at(p.root, &s);
    CHECK(s.container == CONTAINER_DOCKER);
}

TEST(podman_has_its_own_words)
{
    _cleanup_(place_close) struct place p;
    _cleanup_free_ char *fix = NULL;

    place_open(&p);
    place_put(&p, "proc/self/mountinfo", "2 1 0:2 / /proc ro,nosuid - proc proc rw\n");
    place_put(&p, "run/.containerenv", "");
    fix = place_fix(&p, NEED_PROC);
    CHECK(STREQ(fix, "Start the container with --security-opt 'unmask=/proc/*'."));
}

TEST(a_pod_is_told_in_the_words_of_a_pod)
{
    _cleanup_(place_close) struct place p;
    _cleanup_free_ char *fix = NULL;

    place_open(&p);
    place_put(&p, "proc/self/mountinfo", MOUNTS_MASKED);
    place_put(&p, "proc/self/status", "Name:\tx\nSeccomp:\t2\n");
    place_put(&p, "etc/hosts", "# Kubernetes-managed hosts file.\n127.0.0.1 localhost\n");
    fix = place_fix(&p, NEED_NAMESPACES | NEED_UPPER);
    CHECK(strstr(fix, "seccompProfile: {type: Unconfined}"));
    CHECK(strstr(fix, "emptyDir volume at '/var/lib/ripcord'"));
}

TEST(sysctls_of_the_machine)
{
    _cleanup_(place_close) struct place p;
    _cleanup_free_ char *off = NULL, *locked = NULL, *none = NULL, *inside = NULL;

    place_open(&p);
    place_put(&p, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
    locked = place_fix(&p, NEED_NAMESPACES);
    CHECK(strstr(locked, "apparmor_parser -r /etc/apparmor.d/ripcord"));
    place_put(&p, "proc/sys/kernel/unprivileged_userns_clone", "0\n");
    off = place_fix(&p, NEED_NAMESPACES);
    CHECK(STREQ(off, "Run 'sysctl -w kernel.unprivileged_userns_clone=1'."));
    place_put(&p, "proc/sys/user/max_net_namespaces", "0\n");
    none = place_fix(&p, NEED_NAMESPACES);
    CHECK(STREQ(none, "Run 'sysctl -w user.max_net_namespaces=15000'."));
    place_put(&p, "./.dockerenv", "");
    inside = place_fix(&p, NEED_NAMESPACES);
    CHECK(strstr(inside, "outside of the container"));
}
