/*
 * EXECSPEC: the JSON document of a command to run.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "lib/base/json.h"

enum on_disconnect { DISCONNECT_DEFAULT, DISCONNECT_KEEP, DISCONNECT_KILL };

struct exec_spec {
    struct exec_request req;
    enum on_disconnect on_disconnect;
    bool stats; /* the end frame tells of packages too */
};

/* `where` as in json_read(). On failure there is nothing to release. */
int exec_spec_read(const json_t *doc, const char *where, struct exec_spec *ret, struct err *err);
void exec_spec_done(struct exec_spec *s);
