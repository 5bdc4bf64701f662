/*
 * The calls that core makes to an engine. All run on the loop, return at once, and answer on the
 * loop: done() is never called before the call has returned. Arguments are copied; results are
 * borrowed until done() returns. A call that the backend cannot carry out answers ERR_UNSUPPORTED
 * with the engine's name.
 *
 * The subjects have headers of their own: sandbox-spec.h, sandbox-request.h, engine-config.h,
 * engine-objects.h, engine-images.h, engine-caches.h, build.h. Execs are event-driven instead: a
 * start or a connect answers with the socket of the sandbox's supervisor, and supervisor-conn.h is
 * the daemon's side of that socket. engine-ops.h is the interface that backends implement.
 */
#pragma once

#include "daemon/engine/engine-ops.h"

struct loop;

/* err NULL: success. */
typedef void (*engine_done_fn)(void *arg, const struct err *err, struct engine_sandbox *sandbox);

/* ---- the engine ---- */

/* A backend that is not open yet: the first call that needs it opens it. */
struct engine *engine_new(struct loop *loop, const struct engine_ops *ops,
                          const struct engine_config *config);
/* Opens it now, on this thread. */
int engine_open_now(struct engine *e, struct err *err);
/* Both; nothing is left on failure. */
int engine_open(struct loop *loop, const struct engine_ops *ops, const struct engine_config *config,
                struct engine **ret, struct err *err);
void engine_close(struct engine *e); /* waits for its workers; NULL is fine */

bool engine_is_open(const struct engine *e);
/* Why the last attempt to open it failed; NULL: none was made, or it is open. */
const struct err *engine_trouble(const struct engine *e);
/* Opens it when it is closed. The answer's sandbox is empty. */
void engine_prepare(struct engine *e, engine_done_fn done, void *arg);

/* Asks for the doctor's lines (engine_ops.doctor) and looks at the capabilities again. *json is an
 * array of doctor_report_to_json(). The engine may be closed, and is not opened. */
typedef void (*engine_json_fn)(void *arg, const struct err *err, const char *json);
void engine_doctor(struct engine *e, bool wanted, engine_json_fn done, void *arg);

/* One listener, called on the loop. */
typedef void (*engine_news_fn)(void *arg, struct engine *e, const struct engine_news *news);
void engine_listen(struct engine *e, engine_news_fn fn, void *arg);

/* ---- sandboxes ---- */

/* ERR_UNSUPPORTED when this engine cannot carry out the spec here; the engine must be open. Create
 * and start check it too; this call is for callers that must know before they change anything. */
int engine_check_spec(const struct engine *e, const struct sandbox_spec *spec, struct err *err);

/* Also asks the backend; changes nothing. */
void engine_verify(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg);
void engine_create(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg);
void engine_start(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                  void *arg);
/* create, then start, in one trip to the worker; on failure nothing is left. */
void engine_create_start(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                         void *arg);
/* Ends a re-creation (engine_ops.settle). The answer's hash is that of the request if the engine
 * has a whole sandbox with it, else "". */
void engine_settle(struct engine *e, const struct sandbox_request *req, engine_done_fn done,
                   void *arg);
void engine_connect(struct engine *e, const char *id, engine_done_fn done, void *arg);
void engine_look(struct engine *e, const char *id, engine_done_fn done, void *arg);
void engine_cleanup(struct engine *e, const char *id, engine_done_fn done, void *arg);
void engine_remove(struct engine *e, const char *id, engine_done_fn done, void *arg);
/* Whether the removal of many sandboxes is faster when all of them were ended before; only then may
 * engine_end() be called. engine_end() never fails: the removal ends what still runs. */
bool engine_ends_first(const struct engine *e);
void engine_end(struct engine *e, const char *id, engine_done_fn done, void *arg);
/* Deletes the journals of execs that have ended; fine when they are not there. */
void engine_forget_execs(struct engine *e, const char *id, char *const *execs, engine_done_fn done,
                         void *arg);
/* Replaces sandbox_request.spec_text in later answers of engine_list(). */
void engine_note(struct engine *e, const char *id, const char *spec_text, engine_done_fn done,
                 void *arg);
/* After a failure `usage` holds the part that was seen. */
typedef void (*engine_usage_fn)(void *arg, const struct err *err, const struct engine_usage *usage);
void engine_usage(struct engine *e, const char *id, engine_usage_fn done, void *arg);

/* ---- objects on the backend ---- */

/* `specs`: with their spec_text. */
typedef void (*engine_list_fn)(void *arg, const struct err *err, const struct engine_objects *list);
void engine_list(struct engine *e, bool specs, engine_list_fn done, void *arg);
/* Removes an object that is not needed, unless commands run in it: ERR_CONFLICT. */
enum discard {
    DISCARD_ASK,    /* only counts the commands */
    DISCARD_END,    /* and ends the processes */
    DISCARD_REMOVE, /* counts the commands and removes the object */
    DISCARD_ENDED,  /* removes an object that DISCARD_END has ended */
};
void engine_discard(struct engine *e, const struct engine_object *o, enum discard how,
                    engine_done_fn done, void *arg);

/* ---- images ---- */

/* The digest of an image that needs no call to the backend (the only image of an engine without
 * `resolve`, or its fixed default); else NULL. */
const char *engine_fixed_digest(const struct engine *e, const struct sandbox_spec *spec);
/* The digest of spec->image; of the engine's default image when that is NULL. */
typedef void (*engine_digest_fn)(void *arg, const struct err *err, const char *digest);
void engine_resolve(struct engine *e, const struct sandbox_spec *spec, engine_digest_fn done,
                    void *arg);
void engine_image(struct engine *e, const struct image_op *req, engine_json_fn done, void *arg);
void engine_cache_mounts(struct engine *e, const struct cache_mount_op *req, engine_json_fn done,
                         void *arg);

/* ---- package caches ---- */

/* Takes tar_fd. The answer's sandbox is empty, also below. */
void engine_cache_publish(struct engine *e, const char *tool, int tar_fd, engine_done_fn done,
                          void *arg);
void engine_cache_drop(struct engine *e, const char *tool, engine_done_fn done, void *arg);
typedef void (*engine_caches_fn)(void *arg, const struct err *err,
                                 const struct engine_caches *caches);
void engine_cache_list(struct engine *e, engine_caches_fn done, void *arg);
