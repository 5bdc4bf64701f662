/*
 * Builds of images: which engine, whether the request makes sense, and that no build outlives the
 * daemon. What they tell is in daemon/engine/build.h; all on the loop.
 */
#pragma once

#include "daemon/engine/build.h"
#include "lib/base/err.h"

struct manager;
struct manager_build;

/* The last line of a build's events: what it has become, or why it has not. */
char *build_end_line(const struct err *err, const char *json);

/*
 * engine NULL: the default, on which sandboxes of the image will run. Takes what the request holds
 * and body->fd, in any case; body->dir is set here. A failure is for what is wrong with the request
 * itself, and nothing is called then. `done` may be told by the daemon's own end.
 */
int manager_build(struct manager *m, const char *engine, struct build_request *req,
                  struct build_body *body, const struct build_events *events, void *arg,
                  struct manager_build **ret, struct err *err);
void manager_build_hold(struct manager_build *mb, bool on);
/* Whoever asked has gone: nothing is called any more, and mb is not theirs. */
void manager_build_drop(struct manager_build *mb);

/* At shutdown: whoever waits is told. */
void builds_end(struct manager *m);
