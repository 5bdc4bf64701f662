#include "supervisor/shim/start-cause.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"

struct start_cause {
    const struct surroundings *s;
    char *state_dir; /* owned */
    unsigned needs;  /* of a whole start here, for the instruction */
    bool forbidden;  /* the place forbids what namespaces need: others would be refused as well */
    struct err *err;
};

/* Puts words before the error: "words (error)". */
_printf_(2, 3) static void start_cause_say(struct start_cause *c, const char *fmt, ...)
{
    _cleanup_free_ char *words = NULL;
    struct err *err = c->err;
    struct err said = ERR_INIT;
    va_list ap;

    va_start(ap, fmt);
    words = xvasprintf(fmt, ap);
    va_end(ap);
    err_set(&said, err->code == ERR_SYSTEM ? ERR_UNSUPPORTED : err->code, "%s (%s)", words,
            err->msg);
    said.errnum = err->errnum;
    err_done(err);
    err_move(err, &said);
}

/* The instruction of the surroundings; `otherwise` if they know none. */
static void start_cause_fix(struct start_cause *c, unsigned needs, const char *otherwise)
{
    char fix[SURROUNDINGS_FIX_MAX];

    surroundings_fix(c->s, needs | c->needs, c->state_dir, fix);
    if (*fix || otherwise)
        err_hint(c->err, "%s", *fix ? fix : otherwise);
}

/* A weaker isolation is the user's choice: it is only named. */
static void start_cause_offer_confined(struct start_cause *c)
{
    static const char offer[] = "weaker isolation that needs no namespaces: --isolation confined.";
    _cleanup_free_ char *hint = c->err->hint ? xasprintf("%s Or choose %s", c->err->hint, offer)
                                             : xasprintf("Choose %s", offer);

    err_hint(c->err, "%s", hint);
}

/* EPERM, EACCES or ENOSYS: what refuses, as far as that can be seen. */
static void start_cause_refused(struct start_cause *c, const char *what)
{
    const struct surroundings *s = c->s;

    if (c->err->errnum == EACCES && *s->apparmor)
        start_cause_say(c, "the AppArmor profile '%s' forbids %s", s->apparmor, what);
    else if (s->seccomp)
        start_cause_say(c, "a seccomp profile forbids %s", what);
    else if (*s->apparmor)
        start_cause_say(c, "the AppArmor profile '%s' forbids %s", s->apparmor, what);
    else if (s->userns_locked)
        start_cause_say(c, "AppArmor forbids %s to programs without a profile", what);
    else if (c->err->errnum == EACCES)
        start_cause_say(c, "a security module forbids %s", what);
    else
        return;
    c->forbidden = true;
    /* A filter of system calls answers EPERM or ENOSYS. */
    start_cause_fix(c, c->err->errnum == EACCES ? NEED_PROFILE : NEED_NAMESPACES, NULL);
}

static void start_cause_namespaces(struct start_cause *c)
{
    const struct surroundings *s = c->s;

    switch (c->err->errnum) {
    case ENOSPC:
    case EUSERS:
        c->forbidden = *s->no_namespaces;
        if (c->forbidden)
            start_cause_say(c, "%s is 0", s->no_namespaces);
        else
            start_cause_say(c, "the limit of namespaces is reached");
        start_cause_fix(c, NEED_NAMESPACES,
                        "Stop sandboxes, or raise 'sysctl user.max_user_namespaces'.");
        return;
    case EOPNOTSUPP:
        start_cause_say(c, "the cgroup of the sandbox cannot hold processes");
        err_hint(c->err, "Start the daemon in a cgroup that is a domain and not threaded: see its "
                         "file 'cgroup.type'.");
        return;
    case EAGAIN:
        start_cause_say(c, "the limit of processes is reached");
        err_hint(c->err, "End some processes, or raise the limit of the user, the unit or the "
                         "container that the daemon runs in.");
        return;
    case ENOSYS:
        if (!s->seccomp) {
            start_cause_say(c, "the kernel is too old");
            err_hint(c->err, "Use Linux 5.19 or newer.");
            return;
        }
        break;
    case EPERM:
        if (s->userns_off && !s->seccomp) {
            c->forbidden = true;
            start_cause_say(c, "kernel.unprivileged_userns_clone is 0");
            start_cause_fix(c, NEED_NAMESPACES, NULL);
            return;
        }
        break;
    default:
        break;
    }
    start_cause_refused(c, "new namespaces");
}

static void start_cause_proc(struct start_cause *c)
{
    if (!c->s->masked_proc) {
        start_cause_refused(c, "a new /proc");
        return;
    }
    c->forbidden = true;
    start_cause_say(c, "parts of /proc are covered here, so no sandbox can have its own");
    start_cause_fix(c, NEED_PROC,
                    "Start the daemon where all of /proc is visible and writable: outside of the "
                    "container or unit that covers parts.");
}

static void start_cause_upper(struct start_cause *c)
{
    const char *fs = surroundings_no_upper(c->state_dir);

    if (!fs)
        return;
    start_cause_say(c, "'%s' is on %s, which cannot hold the files of a sandbox", c->state_dir, fs);
    start_cause_fix(c, NEED_UPPER, NULL);
}

static void start_cause_idmap(struct start_cause *c, const char *path)
{
    bool ours = !path || strncmp(path, c->state_dir, strlen(c->state_dir)) == 0;

    if (c->err->errnum != EINVAL && c->err->errnum != EOPNOTSUPP)
        return;
    start_cause_say(c, "the file system cannot map the ids of a sandbox");
    if (ours)
        start_cause_fix(c, NEED_UPPER, NULL);
    else
        err_hint(c->err, "Mount a folder on ext4, xfs, btrfs or tmpfs, or copy the files in with "
                         "'ripcord cp'.");
}

static void start_cause_full(struct start_cause *c)
{
    struct statvfs fs;

    if (statvfs(c->state_dir, &fs) == 0 && (fs.f_bavail == 0 || (fs.f_files && !fs.f_favail))) {
        start_cause_say(c, "the disk of '%s' is full", c->state_dir);
        err_hint(c->err, "Free some space there, or choose another folder with --root.");
    } else {
        start_cause_say(c, "a limit of the kernel is reached");
        err_hint(c->err, "Raise 'sysctl fs.mount-max' and 'sysctl user.max_mnt_namespaces', or "
                         "stop sandboxes.");
    }
}

static void start_cause_other(struct start_cause *c)
{
    switch (c->err->errnum) {
    case EPERM:
    case EACCES:
        start_cause_refused(c, "this step of the start");
        return;
    case ENOSYS:
        if (c->s->seccomp) {
            start_cause_refused(c, "this step of the start");
            return;
        }
        start_cause_say(c, "the kernel is too old");
        err_hint(c->err, "Use Linux 5.19 or newer.");
        return;
    case ENOSPC:
        start_cause_full(c);
        return;
    case EOPNOTSUPP:
        start_cause_say(c, "the file system of '%s' lacks a feature that sandboxes need",
                        c->state_dir);
        start_cause_fix(c, NEED_UPPER, NULL);
        return;
    default:
        return;
    }
}

/* Docker's default profile allows namespaces to CAP_SYS_ADMIN, but never pivot_root(). Without a
 * filter, empty names are ENOENT. */
static bool start_cause_no_pivot(void)
{
    return caps_have(CAP_SYS_ADMIN) && syscall(SYS_pivot_root, "", "") < 0 && errno == EPERM;
}

/* What the steps behind this one would be refused: the instruction holds for all. */
static unsigned start_cause_needs(const struct start_cause *c, const struct plan *plan)
{
    /* A pod gets a capability with which sandboxes have ids of their own, and copies do not do. */
    bool plain = !plan->id_base && plan->image == PLAN_IMAGE_HOST && !plan->n_layers &&
                 c->s->container != CONTAINER_KUBERNETES;
    unsigned needs = !plain && surroundings_no_upper(c->state_dir) ? NEED_UPPER : 0;

    needs |= c->s->masked_proc && !plan->id_base ? NEED_PROC : 0;
    needs |= c->s->seccomp && start_cause_no_pivot() ? NEED_NAMESPACES : 0;
    return c->s->container == CONTAINER_NONE ? 0 : needs;
}

/* <state>/sandboxes/<id> */
static char *start_cause_state_dir(const struct plan *plan)
{
    char *path = xstrdup(plan->data_dir);

    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');

        if (slash && slash != path)
            *slash = '\0';
    }
    return path;
}

void start_cause_in(const struct surroundings *s, const struct plan *plan, enum start_step step,
                    const char *path, struct err *err)
{
    struct start_cause c = {.s = s, .err = err};

    if (!err || err->hint || !err->errnum)
        return;
    c.state_dir = start_cause_state_dir(plan);
    c.needs = start_cause_needs(&c, plan);
    if (step == START_STEP_NAMESPACES)
        start_cause_namespaces(&c);
    else if (step == START_STEP_PROC)
        start_cause_proc(&c);
    else if (step == START_STEP_UPPER)
        start_cause_upper(&c);
    else if (step == START_STEP_IDMAP)
        start_cause_idmap(&c, path);
    if (!err->hint)
        start_cause_other(&c);
    if (c.forbidden && plan->may_confine)
        start_cause_offer_confined(&c);
    free(c.state_dir);
}

void start_cause(const struct plan *plan, enum start_step step, const char *path, struct err *err)
{
    struct surroundings s;

    if (!err || err->hint || !err->errnum)
        return;
    surroundings_look(&s);
    start_cause_in(&s, plan, step, path, err);
}
