/*
 * Allocations that fault-inject.c can make fail. Each allocation first makes a system call that the
 * kernel refuses without effect: getrandom() with invalid flags (EINVAL). A tracer sees this call
 * and can answer ENOMEM instead. All our seccomp filters allow it. It is part of the programs that
 * test_fault_inject.py uses, never of the product.
 *
 * In a dynamic program these functions replace those of libc, also for the libraries. A static
 * program is linked with --wrap (ALLOC_WRAPPED), because libc has them in one object with their
 * internals.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "alloc.h"

#ifdef ALLOC_WRAPPED
#define OURS(name) __wrap_##name
#define THEIRS(name) __real_##name
#else
#define OURS(name) name
#define THEIRS(name) __libc_##name
#endif

#define VISIBLE __attribute__((visibility("default")))

void *THEIRS(malloc)(size_t size);
void *THEIRS(calloc)(size_t n, size_t size);
void *THEIRS(realloc)(void *p, size_t size);
VISIBLE void *OURS(malloc)(size_t size);
VISIBLE void *OURS(calloc)(size_t n, size_t size);
VISIBLE void *OURS(realloc)(void *p, size_t size);

/* Does not touch errno: a successful allocation must not change it. */
static int is_refused(void)
{
#ifdef __x86_64__
    long ret;

    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "0"((long)SYS_getrandom), "D"(0L), "S"(0L), "d"((long)ALLOC_MARK)
                     : "rcx", "r11", "memory");
    if (ret != -ENOMEM)
        return 0;
    errno = ENOMEM;
    return 1;
#else
    return 0;
#endif
}

void *OURS(malloc)(size_t size)
{
    return is_refused() ? NULL : THEIRS(malloc)(size);
}

void *OURS(calloc)(size_t n, size_t size)
{
    return is_refused() ? NULL : THEIRS(calloc)(n, size);
}

void *OURS(realloc)(void *p, size_t size)
{
    return is_refused() ? NULL : THEIRS(realloc)(p, size);
}
