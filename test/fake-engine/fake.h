/*
 * The fake engine: a full backend in memory for the tests of the layers above. Its sandboxes are
 * threads that speak proto/supervisor.h on a real socket, write real journals and end records, and
 * run a few scripted commands:
 *
 *   echo WORDS…   to stdout, exit 0        sleep MS      then exit 0
 *   err WORDS…    to stderr, exit 0        cat           stdin to stdout until its end
 *   exit N        exit status N            flood N       N bytes to stdout, exit 0
 *   fail          cannot be started        anything else cannot be started (not found)
 *
 * As with a real engine, the sandboxes outlive the engine object: another engine object on the same
 * state folder finds them with list and connect. fake_reset() ends them all.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

struct engine;
struct engine_ops;

/* Like `fake`, but a backend of its own, named "remote": it can be unreachable (FAKE_OPEN), has
 * images, and others can change its sandboxes. */
extern const struct engine_ops engine_fake_remote_ops;

enum fake_op {
    FAKE_OPEN,
    FAKE_RESOLVE,
    FAKE_LOOK,
    FAKE_VERIFY,
    FAKE_CREATE,
    FAKE_SETTLE,
    FAKE_START,
    FAKE_CONNECT,
    FAKE_CLEANUP,
    FAKE_REMOVE,
    FAKE_LIST,
    FAKE_OPS
};

struct fake_fault {
    enum err_code code; /* ERR_NONE: only the delay */
    uint64_t delay;     /* usec, before anything else */
    unsigned times;     /* how many calls; 0: all from now on */
};

/* fault NULL: removes the fault. Any thread. */
void fake_set_fault(struct engine *e, enum fake_op op, const struct fake_fault *fault);

/* Kills the supervisor of this sandbox at once: it writes no record and sends nothing. */
void fake_kill(const char *id);

/* From now on a supervisor that is asked for its package listener ends instead of answering, as one
 * whose command was very short. */
void fake_end_at_listener(bool on);

/* Does that to a sandbox of `remote` as if from outside, and sends the engine's news. */
enum fake_outside { FAKE_OUTSIDE_NOTHING, FAKE_OUTSIDE_PAUSED, FAKE_OUTSIDE_REMOVED };
void fake_outside(struct engine *e, const char *id, enum fake_outside what);
void fake_new_image(void); /* every image of `remote` gets another digest */

size_t fake_count(void);   /* sandboxes that exist */
size_t fake_running(void); /* with a live supervisor */
void fake_reset(void);     /* ends and removes all; waits */
