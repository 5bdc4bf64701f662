/*
 * What the operations share: the request, answers, opening paths, entries. One per process.
 */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "files/files.h"
#include "lib/base/buf.h"
#include "lib/base/time.h"
#include "proto/files.h"

struct files_task {
    const struct files_io *io;
    enum files_op op;
    struct buf in;              /* bytes of the daemon; the request lies in front and stays */
    struct files_message asked; /* borrowed from in */
    size_t taken;               /* bytes of `in` that were read as messages */
    uint64_t given;             /* set of the tags in the request */
    /* Owned copies of the request's texts; NULL if absent. */
    char *path, *to, *owner, *after, *glob, *pattern, *if_match, *if_none_match, *if_range;
    uint64_t mode, depth, limit, type, context, first, last, suffix;
    size_t pattern_len;
    struct buf out;     /* the message that is written */
    uint64_t out_bytes; /* of all items */
    struct deadline by; /* searches stop here, with a cursor */
    unsigned ticks;     /* steps since the last look at the daemon */
};

static inline bool files_has(const struct files_task *j, enum files_tag tag)
{
    return j->given & FILES_BIT(tag);
}

/* ---- answers ---- */

/* Begins a message in j->out; files_send() ends it and gives it to the connection. */
void files_answer(struct files_task *j, enum files_type type);
int files_send(struct files_task *j, struct err *err);
int files_flush(struct files_task *j, struct err *err);
/* The connection has failed: the daemon has gone, and nobody reads the error. */
int files_lost(struct err *err);
/* Call it once for each step of a long operation. An error: the daemon has gone. 1: the time is
 * over. */
int files_tick(struct files_task *j, struct err *err);

/* ---- entries ---- */

enum { FILES_ETAG_SIZE = 80 };

const char *files_etag(const struct stat *st, char buf[static FILES_ETAG_SIZE]);
enum files_entry_type files_entry_type(const struct stat *st);
/* Sends an item: `st` is that of dirfd/name, whose whole path is `shown`. */
int files_send_entry(struct files_task *j, enum files_type type, int dirfd, const char *name,
                     const char *shown, const struct stat *st, struct err *err);
void files_put_entry(struct files_task *j, int dirfd, const char *name, const char *shown,
                     const struct stat *st);

/* ---- paths ---- */

/* Opens a path of the request as a program of the user would. -1 and errno. */
int files_open(const char *path, int flags);
/* A folder of the request, for reading. */
int files_open_folder(const char *path, int *ret, struct err *err);
/*
 * The parent folder of a path (O_PATH), which is opened through links, and the last component,
 * which belongs to the caller. Slashes at the end are ignored. "/", "." and ".." at the end are
 * refused. `parents`: missing folders are made, with the owner of the job.
 */
int files_open_parent(struct files_task *j, const char *path, bool parents, int *ret,
                      char **ret_name, struct err *err);
/* Makes one folder; 1: made, 0: it exists; -1 and errno. */
int files_make_folder(const struct files_task *j, int dirfd, const char *name, mode_t mode);
/* "dir/name", owned by the caller. */
char *files_join(const char *dir, const char *name);
/* A name for a file that is put in place later; other helpers may work in the same folder. */
enum { FILES_TEMP_SIZE = 40 };
int files_temp_name(char buf[static FILES_TEMP_SIZE], struct err *err);
/* The ids of the request's owner. 1: given; 0: not. */
int files_owner(const struct files_task *j, uid_t *ret_uid, gid_t *ret_gid, struct err *err);

/* ---- the operations ---- */

int files_read(struct files_task *j, struct err *err);
int files_write(struct files_task *j, struct err *err);
int files_stat(struct files_task *j, struct err *err);
int files_list(struct files_task *j, struct err *err);
int files_mkdir(struct files_task *j, struct err *err);
int files_remove(struct files_task *j, struct err *err);
int files_move(struct files_task *j, struct err *err);
int files_copy(struct files_task *j, struct err *err);
int files_chmod(struct files_task *j, struct err *err);
int files_find(struct files_task *j, struct err *err);
int files_grep(struct files_task *j, struct err *err);
int files_edit(struct files_task *j, struct err *err);
int files_watch(struct files_task *j, struct err *err);
int files_ports(struct files_task *j, struct err *err);

/* The next message of the daemon, valid until the next call. 0: the daemon has gone. */
int files_receive(struct files_task *j, struct files_message *ret, struct err *err);
