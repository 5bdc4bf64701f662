#include "lib/base/path.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

static const char *path_env(const char *name)
{
    const char *v = getenv(name);

    /* The XDG specification: a relative path is invalid and must be ignored. */
    return v && *v == '/' ? v : NULL;
}

int path_make_absolute(const char *path, char **ret, struct err *err)
{
    _cleanup_free_ char *cwd = NULL;

    if (*path == '/') {
        *ret = xstrdup(path);
        return 0;
    }
    cwd = getcwd(NULL, 0);
    if (!cwd)
        return err_sys(err, errno, "find the working folder for '%s'", path);
    *ret = xasprintf("%s/%s", cwd, path);
    return 0;
}

static int path_roots_of(const char *root, struct path_roots *ret, struct err *err)
{
    int r = path_make_absolute(root, &ret->root, err);

    if (r < 0)
        return r;
    ret->state = xasprintf("%s/state", ret->root);
    ret->run = xasprintf("%s/run", ret->root);
    ret->config = xasprintf("%s/ripcord.yaml", ret->root);
    return 0;
}

/* $NAME, or $HOME/fallback. */
static int path_xdg_dir(const char *name, const char *fallback, char **ret, struct err *err)
{
    const char *v = path_env(name), *home = path_env("HOME");

    if (v) {
        *ret = xasprintf("%s/ripcord", v);
        return 0;
    }
    if (!home) {
        err_set(err, ERR_INVALID, "neither %s nor HOME is set", name);
        return err_hint(err, "Set HOME, or choose a folder with --root DIR.");
    }
    *ret = xasprintf("%s/%s/ripcord", home, fallback);
    return 0;
}

static int path_roots_of_user(struct path_roots *ret, struct err *err)
{
    _cleanup_free_ char *config = NULL;
    const char *run = path_env("XDG_RUNTIME_DIR");
    int r;

    r = path_xdg_dir("XDG_DATA_HOME", ".local/share", &ret->state, err);
    if (r < 0)
        return r;
    r = path_xdg_dir("XDG_CONFIG_HOME", ".config", &config, err);
    if (r < 0)
        return r;
    ret->run = run ? xasprintf("%s/ripcord", run) : xasprintf("%s/run", ret->state);
    ret->config = xasprintf("%s/ripcord.yaml", config);
    return 0;
}

static void path_roots_of_system(struct path_roots *ret)
{
    ret->state = xstrdup("/var/lib/ripcord");
    ret->run = xstrdup("/run/ripcord");
    ret->config = xstrdup("/etc/ripcord/ripcord.yaml");
}

/*
 * Root of the machine or of a container, to whom /run belongs. Root of a namespace that an ordinary
 * user made (`unshare -r`) sees it as somebody else's. Whether /run is writable does not matter: in
 * a unit with ProtectSystem=strict only /run/ripcord is, and command line and daemon must agree.
 */
static bool path_is_system_root(void)
{
    struct stat st;

    return geteuid() == 0 && stat("/run", &st) == 0 && st.st_uid == 0;
}

int path_roots_init(struct path_roots *ret, const char *root, struct err *err)
{
    struct path_roots p = PATH_ROOTS_INIT;
    const char *env = getenv("RIPCORD_ROOT");
    int r = 0;

    if (root && !*root)
        return err_set(err, ERR_INVALID, "--root needs a folder");
    if (!root && env && *env)
        root = env;
    if (root)
        r = path_roots_of(root, &p, err);
    else if (path_is_system_root())
        path_roots_of_system(&p);
    else
        r = path_roots_of_user(&p, err);
    if (r < 0) {
        path_roots_done(&p);
        return r;
    }
    *ret = p;
    return 0;
}

void path_roots_done(struct path_roots *p)
{
    free(p->root);
    free(p->state);
    free(p->run);
    free(p->config);
    *p = (struct path_roots)PATH_ROOTS_INIT;
}

/* Makes a folder for its owner, and takes the permissions `forbidden` from others. */
static int path_make_private(const char *path, mode_t forbidden, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    r = dir_make_all(AT_FDCWD, path, 0700, err);
    if (r == 0)
        r = dir_open(AT_FDCWD, path, &fd, err);
    if (r < 0) {
        err_wrap(err, "cannot use folder '%s'", path);
        return err_hint(err, "Choose another folder with --root DIR or RIPCORD_ROOT.");
    }
    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "stat folder '%s'", path);
    if (st.st_uid != geteuid()) {
        err_set(err, ERR_DENIED, "folder '%s' belongs to another user (uid %u)", path, st.st_uid);
        return err_hint(err, "Remove it, or choose another folder with --root DIR.");
    }
    if ((st.st_mode & forbidden) && fchmod(fd, 0700) < 0)
        return err_sys(err, errno, "make folder '%s' private", path);
    return 0;
}

/* The users of confined sandboxes pass the state folder as its group, also while we restart. */
int path_roots_make(const struct path_roots *p, struct err *err)
{
    int r = path_make_private(p->state, 077 & ~S_IXGRP, err);

    return r < 0 ? r : path_make_private(p->run, 077, err);
}

static bool path_has_program(const char *folder, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", folder, name);

    return access(path, X_OK) == 0;
}

char *path_of_program(const char *name, const char *installed)
{
    _cleanup_free_ char *libexec = NULL;
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n > 0) {
        self[n] = '\0';
        *strrchr(self, '/') = '\0';
        if (path_has_program(self, name))
            return xstrdup(self);
        libexec = xasprintf("%s/../libexec/ripcord", self);
        if (path_has_program(libexec, name))
            return realpath(libexec, NULL);
    }
    return path_has_program(installed, name) ? xstrdup(installed) : NULL;
}
