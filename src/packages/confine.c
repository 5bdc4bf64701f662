#include "packages/confine.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/macro.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"
#include "packages/config.h"

/* clang-format off */
/* Besides the calls of every network program: those for its store and for sandboxes. */
static const int more[] = {
    SYS_pwrite64, SYS_dup3, SYS_memfd_create, SYS_accept4,
    SYS_mkdirat, SYS_renameat, SYS_renameat2, SYS_fchmod, SYS_fsync, SYS_fdatasync, SYS_utimensat, SYS_fsetxattr,
    SYS_fgetxattr,
#ifdef SYS_rename
    SYS_rename,
#endif
};
/* clang-format on */

int packages_become(const struct packages_config *c, struct err *err)
{
    if (!c->change_user) /* uid 0 of a user namespace has capabilities, too */
        return caps_set(CAPS_NONE, err);
    return caps_become(c->uid, c->gid, err);
}

int packages_confine(struct err *err)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    return confine_network_program(more, ARRAY_SIZE(more), err);
}
