#include "lib/os/whiteout.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "lib/base/macro.h"

#define MARK ".wh."
#define OPAQUE_XATTR "user.overlay.opaque"

enum whiteout whiteout_parse(const char *name, const char **ret_hidden)
{
    const char *rest = name + strlen(MARK);

    if (strncmp(name, MARK, strlen(MARK)) != 0)
        return WHITEOUT_NONE;
    if (STREQ(rest, ".wh..opq"))
        return WHITEOUT_OPAQUE;
    if (strncmp(rest, MARK, strlen(MARK)) == 0)
        return WHITEOUT_OTHER;
    if (!*rest || STREQ(rest, ".") || STREQ(rest, "..") || strchr(rest, '/'))
        return WHITEOUT_BAD;
    *ret_hidden = rest;
    return WHITEOUT_HIDES;
}

bool whiteout_is(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* This device number needs no privilege since Linux 5.8. */
int whiteout_make(int dirfd, const char *name, struct err *err)
{
    if (mknodat(dirfd, name, S_IFCHR, makedev(0, 0)) < 0)
        return err_sys(err, errno, "make a whiteout of '%s'", name);
    return 0;
}

int whiteout_opaque(int dirfd, struct err *err)
{
    if (fsetxattr(dirfd, OPAQUE_XATTR, "y", 1, 0) < 0)
        return err_sys(err, errno, "mark a folder as opaque");
    return 0;
}

bool whiteout_is_opaque(int dirfd)
{
    char value[2];

    return fgetxattr(dirfd, OPAQUE_XATTR, value, sizeof(value)) == 1 && value[0] == 'y';
}
