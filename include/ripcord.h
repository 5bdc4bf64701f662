/*
 * libripcord: run commands in sandboxes from a C program.
 *
 *     struct ripcord *r;
 *     struct ripcord_error *e;
 *     char *answer;
 *
 *     if (ripcord_open(NULL, &r, &e) < 0 ||
 *         ripcord_request(r, "PUT", "/v1/sandboxes/box", "{}", &answer, &e) < 0)
 *         errx(1, "%s", ripcord_error_message(e));
 *
 * examples/hello.c is a complete program. The `ripcord` command and this library share their client
 * code (src/client), which the library wraps in opaque structs.
 *
 * Requests and answers are those of the HTTP API, as JSON text: docs/API.md describes them.
 * ripcord_request() sends any request of the API. The ripcord_exec_* functions follow a command and
 * its output. The library starts the daemon when it does not run, except for a daemon that is
 * reached over TCP.
 *
 * Results: a function that returns int returns 0 or more on success and a negative number on
 * failure. On failure it stores the reason in *err, which the caller releases with
 * ripcord_error_free(). err may be NULL if the reason does not matter. On success *err is not
 * changed, and on failure *ret is not changed.
 *
 * Threads: an object may be used by one thread at a time. Different objects are independent.
 *
 * Strings are UTF-8 and end with a NUL byte. Pointers must not be NULL unless the function says so.
 * The process ends when it runs out of memory.
 */
#ifndef RIPCORD_H
#define RIPCORD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RIPCORD_API __attribute__((visibility("default")))

struct ripcord;       /* a connection to one daemon */
struct ripcord_exec;  /* a command that is being followed */
struct ripcord_error; /* the reason of a failure */

/* ---- errors ---- */

/*
 * The kind of the error, a stable name for programs: "invalid", "not_found", "conflict", "denied",
 * "unauthorized", "limit", "unsupported", "engine", "timeout" or "system". The error owns the text.
 */
RIPCORD_API const char *ripcord_error_code(const struct ripcord_error *e);
/* The message for people, one line without a full stop. The error owns the text. */
RIPCORD_API const char *ripcord_error_message(const struct ripcord_error *e);
/* An instruction for the user, a full sentence, or NULL. The error owns the text. */
RIPCORD_API const char *ripcord_error_hint(const struct ripcord_error *e);
/* Releases the error and its texts. e may be NULL. */
RIPCORD_API void ripcord_error_free(struct ripcord_error *e);

/* ---- the connection and plain requests ---- */

/*
 * Creates a connection object in *ret, to be released with ripcord_close(). The first request
 * connects.
 *
 * root: the folder of the daemon, as with the option --root. NULL means the address in
 * $RIPCORD_HOST (over TCP, with the token in $RIPCORD_TOKEN) if it is set, else the folder in
 * $RIPCORD_ROOT, else the default folders.
 */
RIPCORD_API int ripcord_open(const char *root, struct ripcord **ret, struct ripcord_error **err);
/* Closes the connection and releases the object. r may be NULL. */
RIPCORD_API void ripcord_close(struct ripcord *r);

/*
 * Sends one request and waits for its answer.
 *
 * method and target: as in docs/API.md, for example "PUT" and "/v1/sandboxes/box".
 * body: JSON text, or NULL for a request without a body.
 * ret: receives the answer as JSON text, to be released with free(3). May be NULL.
 *
 * An answer with a status of 400 or more is a failure with the error of the daemon. If the daemon
 * ends during the request, GET and PUT are sent again to the next daemon; another method is sent
 * again only if the first daemon cannot have read it.
 */
RIPCORD_API int ripcord_request(struct ripcord *r, const char *method, const char *target,
                                const char *body, char **ret, struct ripcord_error **err);

/* ---- commands ---- */

/*
 * Starts a command and follows it.
 *
 * target and body: "/v1/sandboxes/NAME/execs" with an EXECSPEC, or "/v1/run" with
 * {"spec":SPEC,"exec":EXECSPEC}. docs/API.md describes SPEC and EXECSPEC.
 * ret: receives the exec, to be released with ripcord_exec_free(). It has its own connection: `r`
 * can be used for other requests or be closed.
 */
RIPCORD_API int ripcord_exec_start(struct ripcord *r, const char *target, const char *body,
                                   struct ripcord_exec **ret, struct ripcord_error **err);
/*
 * Follows a command that was started before, from the given byte offsets of its output. The output
 * of an ended command is replayed. sandbox: a name; exec: an id, or "last".
 */
RIPCORD_API int ripcord_exec_attach(struct ripcord *r, const char *sandbox, const char *exec,
                                    uint64_t stdout_offset, uint64_t stderr_offset,
                                    struct ripcord_exec **ret, struct ripcord_error **err);
/*
 * Closes the connection and releases the object. x may be NULL. A command of "/v1/run" that still
 * runs is killed; any other command continues.
 */
RIPCORD_API void ripcord_exec_free(struct ripcord_exec *x);

/*
 * Callbacks of ripcord_exec_step(). Each may be NULL. Pointers are valid during the call only. A
 * callback must not free the exec.
 */
struct ripcord_exec_events {
    /* The command was started: the name of its sandbox and its id. May come again after a
     * reconnect. */
    void (*started)(void *userdata, const char *sandbox, const char *exec);
    /* Output. stream: 1 is stdout, 2 is stderr. Each byte is delivered once and in order. */
    void (*output)(void *userdata, int stream, uint64_t offset, const void *data, size_t len);
    /* The bytes from offset `from` up to but not including `to` are lost: the journal of the
     * command has a size limit. */
    void (*gap)(void *userdata, int stream, uint64_t from, uint64_t to);
    /* The end record as JSON text. This is the last event. */
    void (*end)(void *userdata, const char *record);
};

/*
 * The descriptor to wait for with poll(2). It is readable when ripcord_exec_step() has work to do.
 * A step may change it. The exec owns it.
 */
RIPCORD_API int ripcord_exec_fd(const struct ripcord_exec *x);
/*
 * Waits for data and calls the callbacks for it.
 *
 * timeout_ms: how long to wait, in milliseconds; 0 does not wait, -1 waits without a limit.
 * userdata: passed to the callbacks.
 *
 * Returns 1 while the command runs (also after the timeout, or when a signal interrupted the wait),
 * 0 after the end event, or a negative number. If the connection is lost, the step connects again,
 * starts the daemon if necessary, and continues at the next byte of the output.
 */
RIPCORD_API int ripcord_exec_step(struct ripcord_exec *x, int timeout_ms,
                                  const struct ripcord_exec_events *events, void *userdata,
                                  struct ripcord_error **err);
/*
 * Writes to the standard input of the command, which needs "stdin":true in its EXECSPEC. Blocks
 * while the command does not read.
 */
RIPCORD_API int ripcord_exec_write(struct ripcord_exec *x, const void *data, size_t len,
                                   struct ripcord_error **err);
/* Closes the standard input of the command: it reads the end of the file. */
RIPCORD_API int ripcord_exec_close_stdin(struct ripcord_exec *x, struct ripcord_error **err);
/* Sends a signal, for example SIGTERM, to the command. */
RIPCORD_API int ripcord_exec_signal(struct ripcord_exec *x, int sig, struct ripcord_error **err);
/* Sets the size of the command's terminal, which needs "tty":true in its EXECSPEC. */
RIPCORD_API int ripcord_exec_resize(struct ripcord_exec *x, unsigned rows, unsigned cols,
                                    struct ripcord_error **err);

#ifdef __cplusplus
}
#endif

#endif
