#include "supervisor/shim/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/os/mount.h"
#include "supervisor/shim/mount-point.h"

static int shim_secrets_write_one(int dirfd, const char *name, const struct handover_secret *s,
                                  const struct user *u, struct err *err)
{
    _cleanup_close_ int fd =
        openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    uint32_t uid = s->has_owner ? s->uid : u->uid, gid = s->has_owner ? s->gid : u->gid;
    int r;

    if (fd < 0 && errno == EEXIST)
        return err_set(err, ERR_INVALID, "secret '%s' is given twice", s->name);
    if (fd < 0)
        return err_sys(err, errno, "create the file for secret '%s'", s->name);
    r = fd_write_all(fd, s->value, s->len);
    if (r < 0)
        return err_sys(err, -r, "write secret '%s'", s->name);
    if (fchown(fd, uid, gid) < 0)
        return err_sys(err, errno, "set the owner of secret '%s' to user %u", s->name, uid);
    if (s->has_mode && fchmod(fd, s->mode) < 0)
        return err_sys(err, errno, "set the mode of secret '%s'", s->name);
    return 0;
}

/* placed: the secrets with a target of their own, in files named by their number; else the others,
 * in files with their names. *ret_open: a file has its own owner or mode. */
static int shim_secrets_write_all(int fd, const struct handover *h, bool placed,
                                  const struct user *u, bool *ret_open, struct err *err)
{
    char number[12];

    for (size_t i = 0; i < h->n_secrets; i++) {
        const struct handover_secret *s = &h->secrets[i];
        int r;

        if (placed != !!s->target)
            continue;
        snprintf(number, sizeof(number), "%zu", i);
        r = shim_secrets_write_one(fd, placed ? number : s->name, s, u, err);
        if (r < 0)
            return r;
        *ret_open |= s->has_owner || s->has_mode;
    }
    return 0;
}

/* If a file has its own owner or mode, other users may enter the folder: the file's mode then
 * decides who may read it. */
static int shim_secrets_make_files(const struct handover *h, bool placed, const struct user *u,
                                   int *ret, struct err *err)
{
    static const char *const options[] = {"size=256k", "nr_inodes=64", "mode=0500", NULL};
    _cleanup_close_ int fd = -1;
    bool open = false;
    int r;

    r = mount_new("tmpfs", options, MOUNT_SAFE | MOUNT_NOEXEC, &fd, err);
    if (r < 0)
        return r;
    r = shim_secrets_write_all(fd, h, placed, u, &open, err);
    if (r < 0)
        return r;
    if (fchownat(fd, "", u->uid, u->gid, AT_EMPTY_PATH) < 0)
        return err_sys(err, errno, "set the owner of the secrets to user %u", u->uid);
    if (open && !placed && fchmodat(fd, ".", 0555, 0) < 0)
        return err_sys(err, errno, "set the mode of the secrets folder");
    r = mount_set(fd, MOUNT_RDONLY | MOUNT_SAFE | MOUNT_NOEXEC, -1, err);
    if (r < 0)
        return r;
    *ret = TAKE_FD(fd);
    return 0;
}

static int shim_secrets_place_folder(int root, const struct handover *h, const struct user *u,
                                     bool placed, int *ret, struct err *err)
{
    int r = shim_secrets_make_files(h, placed, u, ret, err);

    if (r < 0)
        return r;
    r = mount_point_mount(root, SECRETS_DIR, MOUNT_POINT_FOLDER, *ret, err);
    return r < 0 ? err_wrap(err, "mount the secrets at '%s'", SECRETS_DIR) : 0;
}

static int shim_secrets_place_one(int root, int files, size_t i, const char *target,
                                  struct err *err)
{
    _cleanup_close_ int fd = -1;
    char number[12];

    snprintf(number, sizeof(number), "%zu", i);
    if (mount_clone(files, number, MOUNT_RDONLY | MOUNT_SAFE | MOUNT_NOEXEC, &fd, err) < 0 ||
        mount_point_mount(root, target, MOUNT_POINT_FILE, fd, err) < 0)
        return err_wrap(err, "mount a secret at '%s'", target);
    return 0;
}

/* Only an attached mount can be cloned. So these secrets are mounted together at SECRETS_DIR first,
 * where the mount of the other secrets hides them later, and then each one at its target. */
static int shim_secrets_place_alone(int root, const struct handover *h, const struct user *u,
                                    struct err *err)
{
    _cleanup_close_ int files = -1;
    int r;

    r = shim_secrets_place_folder(root, h, u, true, &files, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < h->n_secrets; i++) {
        if (!h->secrets[i].target)
            continue;
        r = shim_secrets_place_one(root, files, i, h->secrets[i].target, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool shim_secrets_has_targets(const struct handover *h)
{
    for (size_t i = 0; i < h->n_secrets; i++)
        if (h->secrets[i].target)
            return true;
    return false;
}

int secrets_place(const struct handover *h, const struct user *u, bool many_ids, struct err *err)
{
    _cleanup_close_ int root = -1, files = -1;
    int r;

    if (!h->n_secrets)
        return 0;
    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(err, errno, "make a mount namespace for the secrets");
    /* The helper's own id may not be mapped inside, and the kernel refuses new files of such
     * ids. */
    if (many_ids && (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0))
        return err_sys(err, errno, "become root in the sandbox");
    root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(err, errno, "open '/' inside");
    if (shim_secrets_has_targets(h)) {
        r = shim_secrets_place_alone(root, h, u, err);
        if (r < 0)
            return r;
    }
    return shim_secrets_place_folder(root, h, u, false, &files, err);
}
