/*
 * Image builds: chooses the engine, checks the request, and cancels all builds when the daemon
 * ends. daemon/engine/build.h describes the events of a build. All on the loop.
 */
#pragma once

#include "daemon/engine/build.h"
#include "lib/base/err.h"

struct manager;
struct manager_build;

/* The last line of a build's events, with the image or the error. The caller frees it. */
char *build_end_line(const struct err *err, const char *json);

/*
 * engine NULL: the default engine. Takes the contents of the request and body->fd, also on failure;
 * sets body->dir. Returns a failure when the request itself is wrong; no event is called then. The
 * shutdown of the daemon also ends a build: `done` then has an error.
 */
int manager_build(struct manager *m, const char *engine, struct build_request *req,
                  struct build_body *body, const struct build_events *events, void *arg,
                  struct manager_build **ret, struct err *err);
void manager_build_hold(struct manager_build *mb, bool on);
/* The client is gone: no event is called any more. mb must not be used afterwards. */
void manager_build_drop(struct manager_build *mb);

/* At shutdown: cancels all builds and reports that to their clients. */
void builds_end(struct manager *m);
