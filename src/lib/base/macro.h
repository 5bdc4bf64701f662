/*
 * Small macros used everywhere. No dependencies.
 */
#pragma once

#include <stddef.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define STREQ(a, b) (strcmp((a), (b)) == 0)

/* <sys/param.h> has its own, and libuv's header brings it in. */
#undef MIN
#undef MAX
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((size_t)(n) << 30)

#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _noreturn_ __attribute__((noreturn))
#define _unused_ __attribute__((unused))
#define _nonnull_ __attribute__((returns_nonnull))
#define _must_check_ __attribute__((warn_unused_result))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
