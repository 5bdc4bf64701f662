/*
 * Reads EXECSPEC, the JSON document of a command to run (docs/API.md).
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "lib/base/json.h"

enum on_disconnect { DISCONNECT_DEFAULT, DISCONNECT_KEEP, DISCONNECT_KILL };

struct api_exec_spec {
    struct exec_request req;
    enum on_disconnect on_disconnect;
    bool output_inline;  /* the answer has the output, */
    uint64_t output_max; /* so many bytes of each stream */
    bool stats;          /* the end frame also has the figures of the package cache */
};

/* `where` as in json_read(). On failure *ret is unchanged. */
int exec_spec_read(const json_t *doc, const char *where, struct api_exec_spec *ret,
                   struct err *err);
void exec_spec_done(struct api_exec_spec *s);
/* A new size of a terminal. */
int exec_spec_check_size(uint64_t rows, uint64_t cols, struct err *err);
