/* What a build on a thin context (proto/digest-context.h) must be sent before it can go on. */
#pragma once

#include "image/build/daemon-conn.h"
#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"

/*
 * Step `from` of the stage has to be done, and so most likely those after it: when a file that they
 * take was left out, all such are asked for ({"need": [DIGITS…]}), and the build fails. It is done
 * again with them, and finds in the cache what has been done by then.
 */
int missing_files_check(const struct workspace *w, const struct build_stage *stage, size_t from,
                        struct daemon_conn *daemon_conn, struct err *err);
