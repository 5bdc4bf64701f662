/*
 * ripcord-shim as a sealed memfd. All shims are started from this one file, which has no name and
 * cannot be written: a sandbox that reaches /proc/self/exe of a shim cannot change the program.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "daemon/engine/native/abilities.h"
#include "daemon/engine/native/native.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* linux 6.3 */
#endif

/* The shim uses low descriptors (proto/supervisor.h): dup2 in the child must not overwrite this. */
enum { SHIM_IMAGE_FD_MIN = 16 };

static int shim_image_make_memfd(int *ret, struct err *err)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    _cleanup_close_ int fd = memfd_create("ripcord-shim", flags | MFD_EXEC);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("ripcord-shim", flags); /* older kernels: executable by default */
    if (fd < 0) {
        err_sys(err, errno, "make a memfd for the shim");
        return native_explain_no_shim(err);
    }
    *ret = fcntl(fd, F_DUPFD_CLOEXEC, SHIM_IMAGE_FD_MIN);
    return *ret < 0 ? err_sys(err, errno, "duplicate the shim's memfd") : 0;
}

static int shim_image_copy_whole(int in, int out, off_t size, struct err *err)
{
    while (size > 0) {
        ssize_t n = sendfile(out, in, NULL, (size_t)size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n ? errno : EIO, "copy the shim");
        size -= n;
    }
    return 0;
}

static int shim_image_copy_sealed(int in, off_t size, int *ret, struct err *err)
{
    int seals = GUARD("seals") ? F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL : 0;
    _cleanup_close_ int fd = -1;
    int r;

    r = shim_image_make_memfd(&fd, err);
    if (r < 0)
        return r;
    r = shim_image_copy_whole(in, fd, size, err);
    if (r < 0)
        return r;
    if (fchmod(fd, 0500) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0)
        return err_sys(err, errno, "seal the shim");
    *ret = TAKE_FD(fd);
    return 0;
}

int native_seal_shim(const char *path, int *ret, struct err *err)
{
    _cleanup_close_ int in = -1;
    struct stat st;

    in = open(path, O_RDONLY | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0) {
        err_sys(err, errno, "open '%s'", path);
        return err_hint(err, "Install ripcord again: ripcord-shim must be beside ripcordd.");
    }
    if (GUARD("a copy"))
        return shim_image_copy_sealed(in, st.st_size, ret, err) < 0
                   ? err_wrap(err, "load '%s'", path)
                   : 0;
    *ret = TAKE_FD(in);
    return 0;
}
