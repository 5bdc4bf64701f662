/*
 * libripcord: run commands in sandboxes from a C program. The same calls stand behind the `ripcord`
 * command.
 *
 *     struct ripcord *r;
 *     struct ripcord_error *e;
 *     char *answer;
 *
 *     if (ripcord_open(NULL, &r, &e) < 0 ||
 *         ripcord_request(r, "PUT", "/v1/sandboxes/box", "{}", &answer, &e) < 0)
 *         errx(1, "%s", ripcord_error_message(e));
 *
 * Everything but streams is one function: ripcord_request(), with the requests and answers of
 * ripcord-api(7), in JSON text. The daemon is started when none answers.
 *
 * Functions return 0 or more, or a negative number; then *err holds the reason, to be released with
 * ripcord_error_free(). err may be NULL. Objects belong to one thread at a time. Strings are UTF-8.
 * Running out of memory ends the process.
 */
#ifndef RIPCORD_H
#define RIPCORD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RIPCORD_API __attribute__((visibility("default")))

struct ripcord;       /* a connection to the daemon of one root */
struct ripcord_exec;  /* a command that is being followed */
struct ripcord_error; /* why something failed */

/* Stable, for programs: "invalid", "not_found", "conflict", "denied", "unauthorized", "limit",
 * "unsupported", "engine", "timeout", "system". */
RIPCORD_API const char *ripcord_error_code(const struct ripcord_error *e);
/* For people. */
RIPCORD_API const char *ripcord_error_message(const struct ripcord_error *e);
/* What the user can do about it, or NULL. */
RIPCORD_API const char *ripcord_error_hint(const struct ripcord_error *e);
RIPCORD_API void ripcord_error_free(struct ripcord_error *e);

/* root: the folder of --root; NULL for $RIPCORD_HOST (over TCP, with the token in $RIPCORD_TOKEN),
 * $RIPCORD_ROOT or the usual places. Connects to nothing yet. */
RIPCORD_API int ripcord_open(const char *root, struct ripcord **ret, struct ripcord_error **err);
RIPCORD_API void ripcord_close(struct ripcord *r);

/* body: JSON text, or NULL for none. *ret (may be NULL): the answer, to be released with free(3).
 */
RIPCORD_API int ripcord_request(struct ripcord *r, const char *method, const char *target,
                                const char *body, char **ret, struct ripcord_error **err);

/*
 * Starts a command and follows it. target: "/v1/sandboxes/NAME/execs" with an EXECSPEC as its body,
 * or "/v1/run" with {"spec":SPEC,"exec":EXECSPEC}. The exec has a connection
 * of its own: `r` may go on to be used, or be closed.
 */
RIPCORD_API int ripcord_exec_start(struct ripcord *r, const char *target, const char *body,
                                   struct ripcord_exec **ret, struct ripcord_error **err);
/* Joins a running exec at the given byte offsets, or replays an ended one. */
RIPCORD_API int ripcord_exec_attach(struct ripcord *r, const char *sandbox, const char *exec,
                                    uint64_t stdout_offset, uint64_t stderr_offset,
                                    struct ripcord_exec **ret, struct ripcord_error **err);
/* Also leaves a command that still runs: one of /v1/run ends with it, others go on. */
RIPCORD_API void ripcord_exec_free(struct ripcord_exec *x);

/* Called from ripcord_exec_step(); each may be NULL. */
struct ripcord_exec_events {
    void (*started)(void *userdata, const char *sandbox, const char *exec);
    /* stream: 1 stdout, 2 stderr. Each byte comes exactly once and in order. */
    void (*output)(void *userdata, int stream, uint64_t offset, const void *data, size_t len);
    /* The bytes from `from` up to `to` are gone: nobody read them in time. */
    void (*gap)(void *userdata, int stream, uint64_t from, uint64_t to);
    /* The end record, as JSON text; the last event. */
    void (*end)(void *userdata, const char *record);
};

/* For poll(2): readable when ripcord_exec_step() has something to do. May change with a step. */
RIPCORD_API int ripcord_exec_fd(const struct ripcord_exec *x);
/*
 * Handles what has arrived, waiting up to timeout_ms for it (-1: as long as it takes). 1 while the
 * command goes on, 0 after its end. A daemon that goes away in between is started again and the
 * output resumed where it was.
 */
RIPCORD_API int ripcord_exec_step(struct ripcord_exec *x, int timeout_ms,
                                  const struct ripcord_exec_events *events, void *userdata,
                                  struct ripcord_error **err);
/* Standard input, with "stdin":true in the EXECSPEC; blocks while the command does not read. */
RIPCORD_API int ripcord_exec_write(struct ripcord_exec *x, const void *data, size_t len,
                                   struct ripcord_error **err);
RIPCORD_API int ripcord_exec_close_stdin(struct ripcord_exec *x, struct ripcord_error **err);
RIPCORD_API int ripcord_exec_signal(struct ripcord_exec *x, int sig, struct ripcord_error **err);
RIPCORD_API int ripcord_exec_resize(struct ripcord_exec *x, unsigned rows, unsigned cols,
                                    struct ripcord_error **err);

#ifdef __cplusplus
}
#endif

#endif
