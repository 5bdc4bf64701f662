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

/* Loops over short writes and EINTR. 0 or -errno: usable where no err object is at hand. */
int fd_write_all(int fd, const void *data, size_t len);
/* Up to len bytes, short only at end of file; or -errno. */
ssize_t fd_read_full(int fd, void *data, size_t len);
int fd_set_nonblock(int fd, bool on);
/* How many more this process may open, at least about: counted from the lowest that is free. */
unsigned fd_left(unsigned *ret_limit);

/* The whole file as NUL-terminated text; over `max` bytes is ERR_LIMIT. */
int file_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len,
              struct err *err);
/* Opens an existing file for writing and writes once (kernel interface files). */
int file_write(int dirfd, const char *path, const char *text, struct err *err);
/* Writes `path`.tmp, fsyncs when asked, renames: readers see the old or the new, never half. */
int file_replace(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync,
                 struct err *err);
/* The same, where other processes may do it with the same file at the same time. */
int file_replace_shared(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                        struct err *err);

/* A new memfd that holds the bytes and can never be changed, at offset 0. */
int memfd_sealed(const char *name, const void *data, size_t len, int *ret, struct err *err);

/* mkdir -p of an absolute or dirfd-relative path; each new folder gets `mode`. */
int dir_make_all(int dirfd, const char *path, mode_t mode, struct err *err);
/* Opens a folder O_PATH-free (readable), O_NOFOLLOW on the last component. */
int dir_open(int dirfd, const char *path, int *ret, struct err *err);
/* The folder above what a path names, O_PATH; *ret_name: its name there, within the path. */
int dir_open_above(const char *path, int *ret, const char **ret_name, struct err *err);

/*
 * Unix sockets by folder and name, through /proc/self/fd/<dirfd>/<name>, so that the 108-byte limit
 * of sun_path never matters. type: SOCK_STREAM or SOCK_SEQPACKET, may carry SOCK_NONBLOCK. connect
 * gives -errno mapped nowhere: 0 or ERR_SYSTEM with errnum.
 */
int unix_listen(int dirfd, const char *name, int type, mode_t mode, int *ret, struct err *err);
int unix_connect(int dirfd, const char *name, int type, int *ret, struct err *err);
int unix_connect_path(const char *path, int type, int *ret, struct err *err);

/* One message with up to n descriptors; n may be 0. 0 or -errno. MSG_NOSIGNAL. */
#define FD_SEND_MAX 16
int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n, int flags);

/* What fd_send() said means that the kernel has no memory for the message, or too many descriptors
 * on their way: the line is whole, and soon takes it. poll() does not tell when. */
bool fd_send_is_short(int r);
/* One message; *n is the room on entry and the number received on return (all O_CLOEXEC). Length, 0
 * at end, or -errno; -EMSGSIZE when cut. */
ssize_t fd_recv(int sock, void *data, size_t len, int *fds, size_t *n, int flags);
