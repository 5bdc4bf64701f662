/* Files that a build needs and that its digest-only context (proto/digest-context.h) leaves out. */
#pragma once

#include "image/build/daemon-conn.h"
#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"

/*
 * For a step `from` that is not in the cache. If this step or a later one of the stage needs a file
 * that was left out, sends the event {"need": [DIGITS…]} with all such files and fails with
 * ERR_CONFLICT. The client then builds again with these files, and the finished steps are in the
 * cache.
 */
int missing_files_check(const struct workspace *w, const struct build_stage *stage, size_t from,
                        struct daemon_conn *daemon_conn, struct err *err);
