/*
 * Files and descriptors: whole reads and writes, atomic replacement, socket helpers. Everything
 * opened here is O_CLOEXEC.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"

/* Loops over short writes and EINTR. Returns 0 or -errno, for callers without an err object. */
int fd_write_all(int fd, const void *data, size_t len);
/* Up to len bytes, short only at end of file; or -errno. */
ssize_t fd_read_full(int fd, void *data, size_t len);
int fd_set_nonblock(int fd, bool on);
/* About how many more descriptors this process may open, counted from the lowest free one. */
unsigned fd_left(unsigned *ret_limit);

/* The whole file as NUL-terminated text; over `max` bytes is ERR_LIMIT. */
int file_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
              struct err *err);
/* Opens an existing file for writing and writes once (kernel interface files). */
int file_write(int dirfd, const char *path, const char *text, struct err *err);
/* Writes `path`.tmp, calls fsync() if `sync`, and renames: readers see the old or the new file. */
int file_replace(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync,
                 struct err *err);
/* The same for a file that several processes may replace at the same time. */
int file_replace_shared(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                        struct err *err);

/* A new, sealed memfd that holds the bytes, at offset 0. */
int memfd_sealed(const char *name, const void *data, size_t len, int *ret, struct err *err);

/* mkdir -p of an absolute or dirfd-relative path; each new folder gets `mode`. */
int dir_make_all(int dirfd, const char *path, mode_t mode, struct err *err);
/* Opens a folder for reading (not O_PATH), with O_NOFOLLOW for the last component. */
int dir_open(int dirfd, const char *path, int *ret, struct err *err);
/*
 * openat2() with O_CLOEXEC, also where the call does not exist: the guest of a container with a
 * writable mount does not have it. RESOLVE_BENEATH there means that no symlink is followed; without
 * it the path may go through a magic link of /proc, and the guest has no descriptor of a file that
 * a command inside does not have. -1 and errno.
 */
int fd_open_resolved(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve);
/* Opens a path that stays below dirfd, without following a symlink (ELOOP or ENOTDIR). */
int fd_open_beneath(int dirfd, const char *path, int flags);
/* Opens the parent folder of `path` with O_PATH. *ret_name is the last component, within `path`. */
int dir_open_above(const char *path, int *ret, const char **ret_name, struct err *err);

/*
 * Unix sockets by folder and name, through /proc/self/fd/<dirfd>/<name>, so that the 108-byte limit
 * of sun_path never matters. type: SOCK_STREAM or SOCK_SEQPACKET, optionally with SOCK_NONBLOCK.
 * A failure is ERR_SYSTEM; errnum has the reason.
 */
int unix_listen(int dirfd, const char *name, int type, mode_t mode, int *ret, struct err *err);
int unix_connect(int dirfd, const char *name, int type, int *ret, struct err *err);
int unix_connect_path(const char *path, int type, int *ret, struct err *err);

/* One message with up to n descriptors; n may be 0. 0 or -errno. MSG_NOSIGNAL. */
#define FD_SEND_MAX 16
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n, int flags);

/* Whether the result of fd_send() means that the kernel is short of memory or has too many
 * descriptors in flight. The socket still works, so the caller tries again soon; poll() does not
 * report when. */
bool fd_send_is_short(int r);
/* Receives one message. *n is the room for descriptors on entry and their number on return (all
 * O_CLOEXEC). Returns the length, 0 at the end, or -errno; -EMSGSIZE when the message was cut. */
ssize_t fd_recv(int sock, void *data, size_t len, int *fds, size_t *n, int flags);
