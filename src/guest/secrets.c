#include "guest/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

static int guest_secrets_write_one(int dirfd, const struct guest_secret *s, struct err *err)
{
    _cleanup_close_ int fd =
        openat(dirfd, s->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    int r;

    if (fd < 0 && errno == EEXIST)
        return err_set(err, ERR_INVALID, "secret '%s' is given twice", s->name);
    if (fd < 0)
        return err_sys(err, errno, "create the file for secret '%s'", s->name);
    r = fd_write_all(fd, s->value, s->len);
    return r < 0 ? err_sys(err, -r, "write secret '%s'", s->name) : 0;
}

static int guest_secrets_fill(const struct guest_spec *spec, const char *folder, struct err *err)
{
    _cleanup_close_ int dirfd = -1;
    int r;

    r = dir_open(AT_FDCWD, folder, &dirfd, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < spec->n_secrets; i++) {
        r = guest_secrets_write_one(dirfd, &spec->secrets[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

int secrets_write(const struct guest_spec *spec, char **ret, struct err *err)
{
    _cleanup_free_ char *folder = NULL;
    struct statfs fs;
    int r;

    *ret = NULL;
    if (!spec->n_secrets)
        return 0;
    /* Secrets must be on a tmpfs: on a disk they would outlive the container. */
    if (statfs(SECRETS_DIR, &fs) < 0 || fs.f_type != TMPFS_MAGIC) {
        err_set(err, ERR_UNSUPPORTED, "this container has no tmpfs at '%s'", SECRETS_DIR);
        return err_hint(err, "Stop the sandbox and start it again; that creates a new container.");
    }
    folder = xstrdup(SECRETS_DIR "/XXXXXX");
    if (!mkdtemp(folder))
        return err_sys(err, errno, "create a folder in '%s'", SECRETS_DIR);
    r = guest_secrets_fill(spec, folder, err);
    if (r < 0) {
        secrets_remove(spec, folder);
        return r;
    }
    *ret = TAKE_PTR(folder);
    return 0;
}

/* Files that the command itself has put there stay until the container is removed. */
void secrets_remove(const struct guest_spec *spec, const char *folder)
{
    _cleanup_close_ int dirfd = -1;

    if (!folder || dir_open(AT_FDCWD, folder, &dirfd, NULL) < 0)
        return;
    for (size_t i = 0; i < spec->n_secrets; i++)
        unlinkat(dirfd, spec->secrets[i].name, 0);
    rmdir(folder);
}
