/*
 * One throw-away sandbox of the doctor: started, used and removed. On the loop.
 */
#pragma once

#include <stddef.h>

#include "lib/base/json.h"

struct doctor_feature;
struct doctor_try;
struct manager;

/* Called once, when the try is freed and out of its list. The callee owns the line of the report. A
 * sandbox that is kept is gone by then; that of a run goes with its command. */
typedef void (*doctor_try_fn)(void *arg, size_t which, json_t *line);

/* Puts itself into *list. Never calls fn before it has returned. folder: for a mount. */
void doctor_try_begin(struct manager *m, const struct doctor_feature *f, size_t which,
                      const char *folder, struct doctor_try **list, doctor_try_fn fn, void *arg);
struct doctor_try *doctor_try_next(const struct doctor_try *t);
/* Stops to look at its command; it will not call fn any more. */
void doctor_try_stop(struct doctor_try *t);
void doctor_try_free(struct doctor_try *t);
