/*
 * Scope-bound release of resources. Declare with the empty value (NULL, -1), so that every early
 * return is right, and hand over at the end with TAKE_PTR / TAKE_FD. No cleanup clobbers errno.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ _cleanup_(cleanup_freep)
#define _cleanup_close_ _cleanup_(cleanup_closep)
#define _cleanup_closedir_ _cleanup_(cleanup_closedirp)
#define _cleanup_fclose_ _cleanup_(cleanup_fclosep)

/* Returns the value and leaves the empty one, so that the cleanup attribute releases nothing. */
#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) _taken = (p);                                                                \
        (p) = NULL;                                                                                \
        _taken;                                                                                    \
    })
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int _taken = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        _taken;                                                                                    \
    })

/* Defines `fn`p() for use with _cleanup_(): DEFINE_CLEANUP(struct sandbox *, sandbox_free). */
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline void fn##p(type *p)                                                              \
    {                                                                                              \
        int saved = errno;                                                                         \
                                                                                                   \
        fn(*p);                                                                                    \
        errno = saved;                                                                             \
    }                                                                                              \
    struct cleanup_needs_semicolon_

static inline void cleanup_freep(void *p)
{
    free(*(void **)p);
}

/* Closes when open; always returns -1, so that `fd = fd_close(fd)` is the idiom. */
static inline int fd_close(int fd)
{
    int saved = errno;

    if (fd >= 0)
        close(fd);
    errno = saved;
    return -1;
}

static inline void cleanup_closep(int *fd)
{
    *fd = fd_close(*fd);
}

static inline void cleanup_closedirp(DIR **d)
{
    int saved = errno;

    if (*d)
        closedir(*d);
    errno = saved;
}

static inline void cleanup_fclosep(FILE **f)
{
    int saved = errno;

    if (*f)
        fclose(*f);
    errno = saved;
}
