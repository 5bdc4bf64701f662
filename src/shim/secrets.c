#include "shim/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "os/mount.h"
#include "shim/place.h"

static int write_secret(int dirfd, const struct handover_secret *s, const struct user *u,
                        struct err *err)
{
    _cleanup_close_ int fd =
        openat(dirfd, s->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    int r;

    if (fd < 0 && errno == EEXIST)
        return err_set(err, ERR_INVALID, "secret '%s' is given twice", s->name);
    if (fd < 0)
        return err_sys(err, errno, "make the file of secret '%s'", s->name);
    r = fd_write_all(fd, s->value, s->len);
    if (r < 0)
        return err_sys(err, -r, "write secret '%s'", s->name);
    if (fchown(fd, u->uid, u->gid) < 0)
        return err_sys(err, errno, "hand secret '%s' to user %u", s->name, u->uid);
    return 0;
}

static int make_files(const struct handover *h, const struct user *u, int *ret, struct err *err)
{
    static const char *const options[] = {"size=256k", "nr_inodes=64", "mode=0500", NULL};
    _cleanup_close_ int fd = -1;
    int r;

    r = mount_new("tmpfs", options, MOUNT_SAFE | MOUNT_NOEXEC, &fd, err);
    for (size_t i = 0; r >= 0 && i < h->n_secrets; i++)
        r = write_secret(fd, &h->secrets[i], u, err);
    if (r >= 0 && fchownat(fd, "", u->uid, u->gid, AT_EMPTY_PATH) < 0)
        r = err_sys(err, errno, "hand the secrets to user %u", u->uid);
    if (r >= 0)
        r = mount_set(fd, MOUNT_RDONLY | MOUNT_SAFE | MOUNT_NOEXEC, -1, err);
    if (r < 0)
        return r;
    *ret = TAKE_FD(fd);
    return 0;
}

/* The helper's own id may not exist inside, and who has no id there can make no file. */
static int become_someone(bool many_ids, struct err *err)
{
    if (many_ids && (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0))
        return err_sys(err, errno, "become root inside");
    return 0;
}

int secrets_place(const struct handover *h, const struct user *u, bool many_ids, struct err *err)
{
    _cleanup_close_ int root = -1, files = -1;
    int r;

    if (!h->n_secrets)
        return 0;
    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(err, errno, "make a mount namespace for the secrets");
    r = become_someone(many_ids, err);
    if (r >= 0)
        r = make_files(h, u, &files, err);
    if (r < 0)
        return r;
    root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(err, errno, "open '/' inside");
    r = place_mount(root, SECRETS_DIR, PLACE_FOLDER, files, err);
    return r < 0 ? err_wrap(err, "place the secrets at '%s'", SECRETS_DIR) : 0;
}
