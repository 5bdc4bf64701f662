#include "daemon/engine/native/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { SUBID_FILE_MAX = 1 << 20 };

static void native_ids_take_range(struct ids *ids, uint64_t first, uint64_t count)
{
    uint64_t end = first + count; /* both below 2^33: no overflow */

    for (uint32_t n = 0; n < IDS_LEASES; n++) {
        uint64_t base = IDS_FIRST + (uint64_t)n * IDS_COUNT;

        if (first < base + IDS_COUNT && base < end)
            ids->taken[n / 8] |= (uint8_t)(1u << (n % 8));
    }
}

/* "user:first:count". newuidmap ignores other lines too. */
static void native_ids_take_line(struct ids *ids, char *line)
{
    char *first = strchr(line, ':'), *count = first ? strchr(first + 1, ':') : NULL;
    uint64_t f, c;

    if (!count)
        return;
    *first++ = *count++ = '\0';
    if (parse_u64(first, 0, UINT32_MAX, &f, NULL) >= 0 &&
        parse_u64(count, 1, UINT32_MAX, &c, NULL) >= 0)
        native_ids_take_range(ids, f, c);
}

static int native_ids_take_file(struct ids *ids, const char *path, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_err_ struct err why = ERR_INIT;

    if (file_read(AT_FDCWD, path, SUBID_FILE_MAX, &text, NULL, &why) < 0)
        return why.errnum == ENOENT ? 0 : err_move(err, &why);
    for (char *line = text; line && *line;) {
        char *next = strchr(line, '\n');

        if (next)
            *next++ = '\0';
        native_ids_take_line(ids, line);
        line = next;
    }
    return 0;
}

static int native_ids_open(struct ids *ids, const char *dir, const char *const *subid_files,
                           struct err *err)
{
    int r = dir_open(AT_FDCWD, dir, &ids->dirfd, err);

    if (r < 0)
        return r;
    for (; *subid_files; subid_files++) {
        r = native_ids_take_file(ids, *subid_files, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int ids_init(struct ids *ids, const char *path, const char *const *subid_files, struct err *err)
{
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *dir = xstrndup(path, (size_t)(slash - path));

    *ids = (struct ids){.dirfd = -1};
    if (native_ids_open(ids, dir, subid_files, err) < 0) {
        ids_done(ids);
        return err_wrap(err, "prepare id leases");
    }
    ids->name = xstrdup(slash + 1);
    /* Daemons with different start points rarely collide in their search. */
    ids->next = (uint32_t)(time_mono() % IDS_LEASES);
    return 0;
}

void ids_done(struct ids *ids)
{
    ids->dirfd = fd_close(ids->dirfd);
    free(ids->name);
    ids->name = NULL;
}

static int native_ids_explain_open(const struct ids *ids, int errnum, struct err *err)
{
    err_sys(err, errnum, "open id leases '%s'", ids->name);
    if (errnum != EROFS)
        return -ERR_SYSTEM;
    return err_hint(err, "All daemons of root share this file. Let the unit make it, with "
                         "ExecStartPre=+/bin/sh -c 'umask 077; : >>" IDS_FILE "'.");
}

/* Where the folder is read-only, as in a unit with ProtectSystem=strict, somebody else has made the
 * file. Then the descriptor is only for reading. */
static int native_ids_open_shared(const struct ids *ids)
{
    int fd = openat(ids->dirfd, ids->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0 || errno != EROFS)
        return fd;
    fd = openat(ids->dirfd, ids->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        errno = EROFS;
    return fd;
}

/* Only we may open the file: any process that can open it could hold every lease. */
static int native_ids_open_file(const struct ids *ids, int *ret, struct err *err)
{
    _cleanup_close_ int fd = native_ids_open_shared(ids);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return native_ids_explain_open(ids, errno, err);
    if (st.st_uid != geteuid() || (st.st_mode & 077) || !S_ISREG(st.st_mode)) {
        err_set(err, ERR_DENIED, "id leases '%s' can be opened by others", ids->name);
        return err_hint(err, "Remove the file; it is made again.");
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* Two descriptors for reading could both lock range n. Each looks for the lock of the other after
 * it has its own, so of two at the same time at least one lets go. */
static int native_ids_lock_for_reading(int fd, uint32_t n)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = n, .l_len = 1};
    struct flock other = lock;

    if (fcntl(fd, F_OFD_SETLK, &lock) < 0)
        return -errno;
    other.l_type = F_WRLCK;
    if (fcntl(fd, F_OFD_GETLK, &other) < 0)
        return -errno;
    if (other.l_type == F_UNLCK)
        return 0;
    lock.l_type = F_UNLCK;
    return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : -EAGAIN;
}

static int native_ids_lock(int fd, uint32_t n)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = n, .l_len = 1};

    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
        return native_ids_lock_for_reading(fd, n);
    return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

int ids_lease(struct ids *ids, uint32_t *ret_base, int *ret_fd, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    r = native_ids_open_file(ids, &fd, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < IDS_LEASES; i++) {
        uint32_t n = (ids->next + i) % IDS_LEASES;

        if (ids->taken[n / 8] & (1u << (n % 8)))
            continue;
        r = native_ids_lock(fd, n);
        if (r == 0) {
            ids->next = (n + 1) % IDS_LEASES;
            *ret_base = IDS_FIRST + n * IDS_COUNT;
            *ret_fd = TAKE_FD(fd);
            return 0;
        }
        if (r != -EAGAIN && r != -EACCES)
            return err_sys(err, -r, "lock id lease %u", n);
    }
    err_set(err, ERR_LIMIT, "all %d id ranges for sandboxes are in use", IDS_LEASES);
    return err_hint(err, "Stop sandboxes that are not needed.");
}
