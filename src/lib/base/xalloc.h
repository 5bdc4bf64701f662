/*
 * Allocation that ends the process when memory is exhausted. So every size that an outsider chooses
 * must be checked against a limit before the allocation.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "lib/base/macro.h"

void *xmalloc(size_t size) _nonnull_;
void *xcalloc(size_t n, size_t size) _nonnull_;
void *xrealloc(void *p, size_t size) _nonnull_;
void *xreallocarray(void *p, size_t n, size_t size) _nonnull_;
void *xmemdup(const void *p, size_t size) _nonnull_;
char *xstrdup(const char *s) _nonnull_;
char *xstrndup(const char *s, size_t n) _nonnull_;
char *xasprintf(const char *fmt, ...) _nonnull_ _printf_(1, 2);
char *xvasprintf(const char *fmt, va_list ap) _nonnull_ _printf_(1, 0);

#define xnew0(type) ((type *)xcalloc(1, sizeof(type)))
