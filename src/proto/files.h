/*
 * The files protocol: what the daemon and the helper inside a sandbox say to each other to read,
 * write, list, search, change and watch files. One conversation is one operation. It runs over a
 * stream socket to a helper of ripcord-shim, or through ripcord-relay to `guest files`; both only
 * pass the bytes on. Whether the operation failed is not said here: the supervisor's RESULT has the
 * error.
 *
 * A message is u8 type, u32 big-endian length, payload. A payload of fields is a sequence of u8
 * tag, u32 length, value; numbers are u64, big-endian.
 *
 *  daemon -> helper
 *    REQUEST   fields: first OP, then those of the operation. Once, at the beginning
 *    DATA      bytes of the file (write only); any number
 *    END       empty: the file is complete. Without it nothing is put in place
 *
 *  helper -> daemon
 *    HEAD      fields (read): LENGTH raw bytes follow, without messages around them
 *    ITEM      fields: one entry, match or event
 *    DONE      fields: totals. The last message of every operation except read and watch
 *
 * The daemon closes its end to cancel. The answers are made by a process among hostile code: the
 * daemon checks every length, tag and value, and takes at most FILES_ANSWER_MAX bytes.
 *
 * The tables below also name each field in JSON, so that one row is the whole definition of an
 * operation or a field.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum {
    FILES_HEAD_SIZE = 5,
    FILES_REQUEST_MAX = 8 << 20,  /* an edit has its texts in it */
    FILES_MESSAGE_MAX = 64 << 10, /* every other message */
    FILES_ANSWER_MAX = 8 << 20,   /* all items of one operation; a watch has no end */
    FILES_PATH_MAX = 4095,
    FILES_LIMIT_MAX = 10000, /* items of one answer */
    FILES_LIMIT_DEFAULT = 1000,
    FILES_DEPTH_MAX = 64,
    FILES_CONTEXT_MAX = 20, /* lines before and after a match */
    FILES_EDIT_MAX = 16 << 20,
    FILES_EDITS_MAX = 256,
    FILES_PATTERN_MAX = 4096,
    FILES_ETAG_MAX = 1024,
};

enum files_type {
    FILES_REQUEST = 0x01,
    FILES_DATA,
    FILES_END,
    FILES_DAEMON_END, /* one more than the last type of the daemon */

    FILES_HEAD = 0x81,
    FILES_ITEM,
    FILES_DONE,
    FILES_HELPER_END,
};

enum files_op {
    FILES_READ = 1,
    FILES_WRITE,
    FILES_STAT,
    FILES_LIST,
    FILES_MKDIR,
    FILES_REMOVE,
    FILES_MOVE,
    FILES_COPY,
    FILES_CHMOD,
    FILES_FIND,
    FILES_GREP,
    FILES_EDIT,
    FILES_WATCH,
    FILES_PORTS, /* the TCP sockets that listen; no file, but the same helper */
    FILES_OP_END,
};

enum files_tag {
    FILES_TAG_OP = 1,
    FILES_TAG_PATH,
    FILES_TAG_TO,
    FILES_TAG_OWNER,
    FILES_TAG_MODE,
    FILES_TAG_PARENTS,
    FILES_TAG_ATOMIC,
    FILES_TAG_RECURSIVE,
    FILES_TAG_OVERWRITE,
    FILES_TAG_FOLLOW, /* whether a link at the end of PATH is followed */
    FILES_TAG_MISSING_OK,
    FILES_TAG_DEPTH,
    FILES_TAG_LIMIT,
    FILES_TAG_AFTER, /* the last path of the page before; in JSON opaque */
    FILES_TAG_GLOB,
    FILES_TAG_TYPE,
    FILES_TAG_PATTERN,
    FILES_TAG_REGEX,
    FILES_TAG_IGNORE_CASE,
    FILES_TAG_CONTEXT,
    FILES_TAG_OLD, /* OLD, NEW and COUNT repeat, in this order */
    FILES_TAG_NEW,
    FILES_TAG_COUNT,
    FILES_TAG_IF_MATCH, /* lists of entity tags, as in the fields of HTTP */
    FILES_TAG_IF_NONE_MATCH,
    FILES_TAG_IF_RANGE,
    FILES_TAG_FIRST,  /* of a range, and of the bytes that follow HEAD */
    FILES_TAG_LAST,   /* of a range, inclusive */
    FILES_TAG_SUFFIX, /* the last bytes, instead of FIRST */
    FILES_TAG_NO_BODY,

    FILES_TAG_STATUS, /* of HTTP: 200, 201, 206, 304, 412, 416 */
    FILES_TAG_LENGTH,
    FILES_TAG_SIZE,
    FILES_TAG_MODIFIED, /* nanoseconds since the epoch */
    FILES_TAG_UID,
    FILES_TAG_GID,
    FILES_TAG_LINKS,
    FILES_TAG_TARGET, /* of a symbolic link */
    FILES_TAG_ETAG,
    FILES_TAG_LINE,
    FILES_TAG_COLUMN,
    FILES_TAG_TEXT,
    FILES_TAG_CUT,
    FILES_TAG_IS_CONTEXT,
    FILES_TAG_EVENT,
    FILES_TAG_CREATED,
    FILES_TAG_REMOVED,
    FILES_TAG_ENTRIES,
    FILES_TAG_BYTES,
    FILES_TAG_SKIPPED,
    FILES_TAG_REPLACED,
    FILES_TAG_SEARCHED,
    FILES_TAG_MATCHES,
    FILES_TAG_PORT,
    FILES_TAG_ADDRESS,
    FILES_TAG_PID,
    FILES_TAG_COMMAND,
    FILES_TAG_END,
};

enum files_kind {
    FILES_KIND_NUMBER = 1, /* min to max */
    FILES_KIND_FLAG,       /* 1; a false flag is left out */
    FILES_KIND_MODE,       /* permission bits; in JSON octal text */
    FILES_KIND_PATH,       /* absolute, without NUL */
    FILES_KIND_BYTES,      /* at most max */
    FILES_KIND_TEXT,       /* at most max, UTF-8, without NUL */
    FILES_KIND_CURSOR,     /* a path below PATH; in JSON opaque */
    FILES_KIND_TYPE,       /* enum files_entry_type; in JSON a word */
    FILES_KIND_EVENT,      /* enum files_event; in JSON a word */
    FILES_KIND_TIME,       /* nanoseconds since the epoch; in JSON as all times */
};

enum files_entry_type {
    FILES_IS_FILE,
    FILES_IS_FOLDER,
    FILES_IS_LINK,
    FILES_IS_OTHER,
    FILES_TYPES
};

enum files_event {
    FILES_EVENT_READY,
    FILES_EVENT_CREATED,
    FILES_EVENT_MODIFIED,
    FILES_EVENT_ATTRIBUTES,
    FILES_EVENT_REMOVED,
    FILES_EVENT_MOVED,
    FILES_EVENT_OVERFLOW,
    FILES_EVENT_GONE,
    FILES_EVENTS,
};

struct files_tag_row {
    const char *name; /* in JSON; of bytes that are not UTF-8 with "_base64" appended */
    enum files_kind kind;
    uint64_t min, max;
};

struct files_op_row {
    const char *name;
    uint64_t allowed, required; /* sets of FILES_BIT() */
    const char *items; /* the key of the items in the answer; NULL: one item is the answer */
    bool writes;
};

#define FILES_BIT(tag) (UINT64_C(1) << (tag))

/* NULL for an unknown number. */
const struct files_tag_row *files_tag_row(unsigned tag);
const struct files_op_row *files_op_row(unsigned op);
enum files_op files_op_find(const char *name); /* 0: unknown */
const char *files_type_name(unsigned type);
const char *files_event_name(unsigned event);

/* Writing: files_begin(), fields, files_finish(). `w` must be empty. More than `w.max` bytes are
 * found by files_finish(): -ERR_LIMIT. */
void files_begin(struct buf *w, enum files_type type);
void files_put_u64(struct buf *w, enum files_tag tag, uint64_t v);
void files_put_bytes(struct buf *w, enum files_tag tag, const void *data, size_t len);
void files_put_str(struct buf *w, enum files_tag tag, const char *s); /* NULL: no field */
void files_put_flag(struct buf *w, enum files_tag tag, bool on);      /* false: no field */
int files_finish(struct buf *w, struct err *err);
/* Only the head, for callers that send the payload without copying it. */
void files_put_head(char p[static FILES_HEAD_SIZE], enum files_type type, uint32_t length);

struct files_message {
    enum files_type type;
    const char *data; /* borrowed */
    size_t length;
};

/* 1 and *ret, the message in the first FILES_HEAD_SIZE + length bytes; 0 if more bytes are needed;
 * -ERR_INVALID. */
int files_parse(const char *data, size_t len, bool from_helper, struct files_message *ret,
                struct err *err);

struct files_field {
    enum files_tag tag;
    const char *data; /* borrowed, not NUL-terminated */
    size_t length;
    uint64_t u64; /* of kinds that are numbers */
};

struct files_reader {
    const char *p, *end;
};

/* Walks the fields of a message. 1 and *ret, checked against its row; 0 at the end;
 * -ERR_INVALID. */
struct files_reader files_fields(const struct files_message *m);
int files_next(struct files_reader *r, struct files_field *ret, struct err *err);

/* Whether a list of entity tags ("*", or `"a", W/"b"`) has `etag`, which has its quotes. A weak tag
 * matches only with `weak`. */
bool files_etag_listed(const char *list, const char *etag, bool weak);
