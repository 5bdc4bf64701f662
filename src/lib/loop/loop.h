/*
 * The event loop (libuv). A program has one loop, and only its thread touches our structs. A
 * callback should finish within a millisecond. libuv frees a handle in its close callback; the
 * types below hide that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct loop;
struct uv_loop_s;

int loop_new(struct loop **ret, struct err *err);
void loop_free(struct loop *l); /* all handles must be closed; asserts in debug builds */
struct uv_loop_s *loop_uv(struct loop *l);
void loop_run(struct loop *l); /* until loop_stop() */
void loop_stop(struct loop *l);

/* Runs fn once, on the next turn of the loop. It avoids recursion: a callback must not run before
 * the call that registered it has returned. */
typedef void (*loop_fn)(void *arg);
void loop_defer(struct loop *l, loop_fn fn, void *arg);

struct loop_timer;
struct loop_timer *loop_timer_new(struct loop *l, loop_fn fn, void *arg);
void loop_timer_set(struct loop_timer *t, uint64_t usec,
                    bool repeat); /* 0 fires on the next turn */
void loop_timer_stop(struct loop_timer *t);
void loop_timer_free(struct loop_timer *t); /* NULL is fine */

/*
 * Watches a descriptor that the caller owns and must keep open until loop_watch_free() (which may
 * be called from fn). The descriptor becomes non-blocking; one watch per descriptor. NULL: the
 * kernel cannot watch it (a plain file, too many watches). A hang-up or error shows as the watched
 * events; after an error no more events come until the next loop_watch_set().
 */
enum { LOOP_READ = 1, LOOP_WRITE = 2 };
struct loop_watch;
typedef void (*loop_watch_fn)(void *arg, int events);
struct loop_watch *loop_watch_new(struct loop *l, int fd, loop_watch_fn fn, void *arg);
void loop_watch_set(struct loop_watch *w, int events); /* 0 pauses */
void loop_watch_free(struct loop_watch *w); /* NULL is fine; the fd may be closed right after */

struct loop_signal; /* NULL from new: the signal cannot be caught */
typedef void (*loop_signal_fn)(void *arg, int sig);
struct loop_signal *loop_signal_new(struct loop *l, int sig, loop_signal_fn fn, void *arg);
void loop_signal_free(struct loop_signal *s);
