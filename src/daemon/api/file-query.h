/*
 * The query of the routes below …/files: path, user, and how files are written.
 */
#pragma once

#include "daemon/api/call.h"
#include "proto/supervisor.h"

struct file_query {
    struct sup_copy copy; /* its strings are those below */
    char *path, *user, *owner;
};

void file_query_done(struct file_query *q);
#define _cleanup_query_ __attribute__((cleanup(file_query_done)))

/* into: the copy goes into the sandbox. */
int file_query_read(const struct api_call *call, bool into, struct file_query *ret,
                    struct err *err);
