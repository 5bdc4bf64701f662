#include "lib/os/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"

enum { PTY_SLAVE_MAJOR = 136 }; /* Documentation/admin-guide/devices.txt: 136-143 */

int pty_resize(int fd, uint16_t rows, uint16_t cols, struct err *err)
{
    struct winsize size = {.ws_row = rows, .ws_col = cols};

    if (ioctl(fd, TIOCSWINSZ, &size) < 0)
        return err_sys(err, errno, "set the terminal's size");
    return 0;
}

static int pty_check_slave(int fd, struct err *err)
{
    struct statfs fs;
    struct stat st;

    if (fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "inspect the terminal");
    if (fs.f_type != DEVPTS_SUPER_MAGIC || !S_ISCHR(st.st_mode) ||
        major(st.st_rdev) < PTY_SLAVE_MAJOR || major(st.st_rdev) > PTY_SLAVE_MAJOR + 7)
        return err_set(err, ERR_DENIED, "'/dev/pts/ptmx' did not open a terminal");
    return 0;
}

/* Opens the slave of this master. Its name could lead elsewhere: hostile code can change it. */
static int pty_open_slave(int master)
{
    int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    char name[64];

    if (GUARD("terminal"))
        return ioctl(master, TIOCGPTPEER, flags);
    return ptsname_r(master, name, sizeof(name)) ? -1 : open(name, flags);
}

int pty_open(uint16_t rows, uint16_t cols, int *ret_master, int *ret_slave, struct err *err)
{
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    _cleanup_close_ int master = -1, slave = -1;
    int unlock = 0, r;

    master = fd_open_beneath(root, "dev/pts/ptmx", O_RDWR | O_NOCTTY);
    if (master < 0 &&
        errno == EACCES) /* the machine's own devpts; its other node is for everybody */
        master = fd_open_beneath(root, "dev/ptmx", O_RDWR | O_NOCTTY);
    if (master < 0)
        return err_sys(err, errno, "open '/dev/pts/ptmx'");
    if (ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_sys(err, errno, "unlock the terminal");
    slave = pty_open_slave(master);
    if (slave < 0)
        return err_sys(err, errno, "open the other end of the terminal");
    r = GUARD("terminal") ? pty_check_slave(slave, err) : 0;
    if (r < 0)
        return r;
    r = rows && cols ? pty_resize(master, rows, cols, err) : 0;
    if (r < 0)
        return r;
    *ret_master = TAKE_FD(master);
    *ret_slave = TAKE_FD(slave);
    return 0;
}
