#include "image/build/mount-placeholders.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/whiteout.h"

static int mount_placeholders_open(int dir, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* Whether a parent of `path` in this layer hides the layers below: a whiteout, or opaque. */
static bool mount_placeholders_is_hidden_by(int layer, const char *path)
{
    _cleanup_free_ char *part = xstrdup(path);
    char *slash;

    while ((slash = strrchr(part, '/'))) {
        _cleanup_close_ int fd = -1;
        struct stat st;

        *slash = '\0';
        fd = mount_placeholders_open(layer, part, O_PATH);
        if (fd < 0)
            continue;
        if (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
            return true;
        fd_close(fd);
        fd = mount_placeholders_open(layer, part, O_RDONLY | O_DIRECTORY);
        return fd >= 0 && whiteout_is_opaque(fd);
    }
    return false;
}

static bool mount_placeholders_exists(const struct workspace *w, char *const *layers,
                                      const char *path)
{
    for (size_t i = strv_len(layers); i-- > 0;) {
        _cleanup_free_ char *fs = images_layer_path(w->store, layers[i]);
        _cleanup_close_ int layer = -1, fd = -1;
        struct stat st;

        if (dir_open(w->store->dir, fs, &layer, NULL) < 0)
            return true;
        fd = mount_placeholders_open(layer, path, O_PATH);
        if (fd >= 0)
            return fstat(fd, &st) == 0 && !whiteout_is(&st);
        if (errno == ELOOP)
            return true;
        if (mount_placeholders_is_hidden_by(layer, path))
            return false;
    }
    return false;
}

void mount_placeholders_note(struct mount_placeholders *s, const struct workspace *w,
                             char *const *layers, const char *target)
{
    const char *path = target + strspn(target, "/");

    for (size_t at = strcspn(path, "/");; at += 1 + strcspn(path + at + 1, "/")) {
        _cleanup_free_ char *part = xstrndup(path, at);

        if (*part && !strv_contains(s->paths, part) && !mount_placeholders_exists(w, layers, part))
            strv_push(&s->paths, TAKE_PTR(part));
        if (!path[at])
            return;
    }
}

static void mount_placeholders_remove_one(int fs, const char *path)
{
    _cleanup_free_ char *parent = xstrdup(path);
    char *slash = strrchr(parent, '/');
    const char *name = slash ? slash + 1 : path;
    _cleanup_close_ int dir = -1;
    struct stat st;

    if (slash)
        *slash = '\0';
    dir = slash ? mount_placeholders_open(fs, parent, O_PATH | O_DIRECTORY)
                : fcntl(fs, F_DUPFD_CLOEXEC, 3);
    if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (S_ISDIR(st.st_mode))
        unlinkat(dir, name, AT_REMOVEDIR);
    else if (S_ISREG(st.st_mode) && st.st_size == 0)
        unlinkat(dir, name, 0);
}

void mount_placeholders_remove(const struct mount_placeholders *s, const struct workspace *w,
                               unsigned n)
{
    _cleanup_free_ char *path = xasprintf("%u/fs", n);
    _cleanup_close_ int fs = -1;

    if (dir_open(w->dir, path, &fs, NULL) < 0)
        return;
    for (size_t i = strv_len(s->paths); i-- > 0;)
        mount_placeholders_remove_one(fs, s->paths[i]);
}

void mount_placeholders_done(struct mount_placeholders *s)
{
    s->paths = strv_free(s->paths);
}
