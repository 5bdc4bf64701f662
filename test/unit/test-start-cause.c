/* Words and instructions for refused starts: one errno has many causes, and each its own fix. */
#include <errno.h>

#include "lib/base/cleanup.h"
#include "supervisor/shim/start-cause.h"
#include "tap.h"

static struct plan plan = {.data_dir = (char *)"/tmp/sandboxes/0123456789abcdef"};

/* Explains a failed step and checks words and hint; a NULL hint: none. */
static bool explains(const struct surroundings *s, enum start_step step, int errnum,
                     const char *words, const char *hint)
{
    _cleanup_err_ struct err err = ERR_INIT;
    bool good;

    err_sys(&err, errnum, "the step");
    start_cause_in(s, &plan, step, NULL, &err);
    good = strstr(err.msg, words) && strstr(err.msg, "the step") && err.errnum == errnum &&
           (hint ? err.hint && strstr(err.hint, hint) : !err.hint);
    if (!good)
        printf("# %s | %s\n", err.msg, err.hint ? err.hint : "-");
    return good;
}

TEST(a_seccomp_profile)
{
    const struct surroundings docker = {.container = CONTAINER_DOCKER, .seccomp = true};
    const struct surroundings unit = {.seccomp = true};

    CHECK(explains(&docker, START_STEP_NAMESPACES, ENOSYS,
                   "a seccomp profile forbids new namespaces (",
                   "--security-opt seccomp=unconfined"));
    CHECK(explains(&docker, START_STEP_NAMESPACES, EPERM,
                   "a seccomp profile forbids new namespaces (",
                   "--security-opt seccomp=unconfined"));
    CHECK(explains(&docker, START_STEP_OTHER, EPERM, "a seccomp profile forbids this step",
                   "seccomp="));
    CHECK(explains(&unit, START_STEP_NAMESPACES, EPERM, "a seccomp profile", "SystemCallFilter="));
}

TEST(a_covered_proc_shows_in_the_first_hint)
{
    const struct surroundings docker = {
        .container = CONTAINER_DOCKER, .seccomp = true, .masked_proc = true};
    const struct surroundings unit = {.masked_proc = true};

    CHECK(explains(&docker, START_STEP_NAMESPACES, ENOSYS, "a seccomp profile",
                   "seccomp=unconfined --security-opt systempaths=unconfined"));
    CHECK(explains(&docker, START_STEP_PROC, EPERM, "parts of /proc are covered",
                   "--security-opt systempaths=unconfined"));
    CHECK(explains(&unit, START_STEP_PROC, EPERM, "parts of /proc are covered", "outside of the"));
    plan.id_base = 65536; /* with a range of ids the shim mounts it from outside */
    CHECK(!explains(&docker, START_STEP_NAMESPACES, ENOSYS, "a seccomp profile", "systempaths"));
    plan.id_base = 0;
}

TEST(confined_is_named_where_namespaces_are_forbidden)
{
    const char *offer = "--isolation confined.";
    const struct surroundings docker = {
        .container = CONTAINER_DOCKER, .seccomp = true, .masked_proc = true};
    const struct surroundings unit = {.masked_proc = true}, none = {.apparmor = "x"};
    const struct surroundings off = {.userns_off = true};
    const struct surroundings zero = {.no_namespaces = "user.max_user_namespaces"};

    CHECK(!explains(&docker, START_STEP_NAMESPACES, ENOSYS, "a seccomp profile", offer));
    plan.may_confine = true;
    CHECK(explains(&docker, START_STEP_NAMESPACES, ENOSYS, "a seccomp profile",
                   "systempaths=unconfined. Or choose weaker isolation"));
    CHECK(explains(&docker, START_STEP_NAMESPACES, EPERM, "a seccomp profile", offer));
    CHECK(explains(&unit, START_STEP_PROC, EPERM, "parts of /proc are covered", offer));
    CHECK(explains(&none, START_STEP_OTHER, EACCES, "the AppArmor profile 'x'", offer));
    CHECK(explains(&off, START_STEP_NAMESPACES, EPERM, "unprivileged_userns_clone is 0", offer));
    CHECK(explains(&zero, START_STEP_NAMESPACES, ENOSPC, "is 0", offer));
    /* These pass, or are about something else. */
    CHECK(!explains(&docker, START_STEP_NAMESPACES, ENOSPC, "the limit of namespaces", offer));
    CHECK(!explains(&unit, START_STEP_NAMESPACES, EAGAIN, "the limit of processes", offer));
    CHECK(!explains(&docker, START_STEP_IDMAP, EINVAL, "cannot map the ids", offer));
    plan.may_confine = false;
}

TEST(apparmor)
{
    const struct surroundings profile = {.apparmor = "docker-default",
                                         .container = CONTAINER_DOCKER};
    const struct surroundings podman = {
        .apparmor = "containers-default", .container = CONTAINER_PODMAN, .seccomp = true};
    const struct surroundings ubuntu = {.userns_locked = true};
    const struct surroundings inside = {.userns_locked = true, .apparmor = "unprivileged_userns"};

    CHECK(explains(&profile, START_STEP_OTHER, EACCES,
                   "the AppArmor profile 'docker-default' forbids",
                   "--security-opt apparmor=unconfined"));
    CHECK(explains(&podman, START_STEP_NAMESPACES, EACCES, "AppArmor profile 'containers-default'",
                   "with --security-opt apparmor=unconfined."));
    CHECK(explains(&ubuntu, START_STEP_NAMESPACES, EACCES,
                   "AppArmor forbids new namespaces to programs without a profile",
                   "apparmor_parser -r /etc/apparmor.d/ripcord"));
    CHECK(explains(&inside, START_STEP_OTHER, EPERM, "the AppArmor profile 'unprivileged_userns'",
                   "apparmor_parser -r /etc/apparmor.d/ripcord"));
}

TEST(sysctls_and_limits)
{
    const struct surroundings none = {.no_namespaces = "user.max_user_namespaces"};
    const struct surroundings off = {.userns_off = true};
    const struct surroundings plain = {0};

    CHECK(explains(&none, START_STEP_NAMESPACES, ENOSPC, "user.max_user_namespaces is 0 (",
                   "sysctl -w user.max_user_namespaces=15000"));
    CHECK(explains(&off, START_STEP_NAMESPACES, EPERM, "kernel.unprivileged_userns_clone is 0",
                   "sysctl -w kernel.unprivileged_userns_clone=1"));
    CHECK(explains(&plain, START_STEP_NAMESPACES, ENOSPC, "the limit of namespaces is reached",
                   "raise"));
    CHECK(explains(&plain, START_STEP_NAMESPACES, EAGAIN, "the limit of processes is reached",
                   "raise"));
    CHECK(explains(&plain, START_STEP_NAMESPACES, ENOSYS, "the kernel is too old", "5.19"));
    CHECK(explains(&plain, START_STEP_NAMESPACES, EOPNOTSUPP, "the cgroup of the sandbox",
                   "cgroup.type"));
    CHECK(explains(&plain, START_STEP_OTHER, ENOSPC, "a limit of the kernel is reached",
                   "fs.mount-max"));
    CHECK(explains(&plain, START_STEP_OTHER, EOPNOTSUPP, "lacks a feature", "ext4"));
    CHECK(explains(&plain, START_STEP_IDMAP, EINVAL, "cannot map the ids", "ext4"));
}

TEST(what_is_not_known_stays_as_it_is)
{
    const struct surroundings plain = {0};
    _cleanup_err_ struct err err = ERR_INIT, hinted = ERR_INIT;

    CHECK(explains(&plain, START_STEP_OTHER, EPERM, "the step", NULL));
    CHECK(explains(&plain, START_STEP_OTHER, EIO, "the step", NULL));
    err_set(&err, ERR_INVALID, "no errno");
    start_cause_in(&plain, &plan, START_STEP_NAMESPACES, NULL, &err);
    CHECK(STREQ(err.msg, "no errno") && !err.hint);
    err_sys(&hinted, EPERM, "the step");
    err_hint(&hinted, "Known already.");
    start_cause_in(&(struct surroundings){.seccomp = true}, &plan, START_STEP_NAMESPACES, NULL,
                   &hinted);
    CHECK(STREQ(hinted.hint, "Known already."));
}
