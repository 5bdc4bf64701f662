#include "daemon/core/sandbox/copy-dial.h"

#include <stdlib.h>

#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/supervisor.h"

enum { TRANSFERS_MAX = 1024 };

/* In its sandbox's list, which owns it, until copy_call_finish(). */
struct copy_call {
    struct copy_call *next;
    struct sandbox *sb;
    struct sup_copy copy; /* its strings are owned; path NULL: a dial, or files */
    bool files;           /* an operation of proto/files.h, as copy.user */
    bool sent;
    bool sleeps; /* a sandbox that is down stays so */
    int tar_fd;  /* of a copy or of files; owned until it is sent */
    uint16_t port;
    copy_done_fn done;
    void *arg;
};

static const struct err gone_err = {.code = ERR_ENGINE, .msg = (char *)"the sandbox is gone"};

static void copy_call_free(struct copy_call *t)
{
    if (!t)
        return;
    fd_close(t->tar_fd);
    free((char *)t->copy.path);
    free((char *)t->copy.user);
    free((char *)t->copy.owner);
    free(t);
}
DEFINE_CLEANUP(struct copy_call *, copy_call_free);

static void copy_call_finish(struct copy_call *t, const struct err *err,
                             const struct copy_result *result)
{
    struct sandbox *sb = t->sb;

    for (struct copy_call **at = &sb->transfers; *at; at = &(*at)->next) {
        if (*at != t)
            continue;
        *at = t->next;
        break;
    }
    sb->n_transfers--;
    lease_touch(sb);
    t->done(t->arg, err, result);
    copy_call_free(t);
}

void copy_dial_lost(struct sandbox *sb, bool all)
{
    const struct copy_result none = {.fd = -1};

    for (struct copy_call *t = sb->transfers, *next; t; t = next) {
        next = t->next;
        if (all || t->sent)
            copy_call_finish(t, &gone_err, &none);
    }
}

/* ---- answers ---- */

static void copy_dial_dialled(void *arg, const struct err *err, int fd)
{
    const struct copy_result result = {.fd = err ? -1 : fd};
    struct err none = {.code = ERR_ENGINE, .msg = (char *)"the supervisor sent no connection"};

    if (err)
        fd_close(fd);
    copy_call_finish(arg, !err && fd < 0 ? &none : err, &result);
}

static void copy_dial_take_stat(struct copy_result *result, const char *stat)
{
    const struct {
        const char *name;
        uint64_t *ret;
    } known[] = {
        {"entries", &result->entries}, {"bytes", &result->bytes}, {"skipped", &result->skipped}};

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        size_t len = strlen(known[i].name);

        if (strncmp(stat, known[i].name, len) == 0 && stat[len] == '=')
            parse_u64(stat + len + 1, 0, INT64_MAX, known[i].ret, NULL);
    }
}

static void copy_dial_copied(void *arg, const struct err *err, char **stats)
{
    struct copy_result result = {.fd = -1};

    for (char **s = stats; s && *s; s++)
        copy_dial_take_stat(&result, *s);
    copy_call_finish(arg, err, &result);
}

/* ---- starting a call ---- */

static void copy_dial_launch(struct copy_call *t)
{
    struct supervisor_conn *conn = t->sb->conn;

    t->sent = true;
    if (t->files)
        supervisor_conn_files(conn, t->copy.user, TAKE_FD(t->tar_fd), copy_dial_copied, t);
    else if (t->copy.path)
        supervisor_conn_copy(conn, &t->copy, TAKE_FD(t->tar_fd), copy_dial_copied, t);
    else
        supervisor_conn_dial(conn, t->port, copy_dial_dialled, t);
}

static void copy_dial_sandbox_ready(void *arg, const struct err *err, const struct sandbox *sb,
                                    enum manager_action action)
{
    const struct copy_result none = {.fd = -1};
    struct copy_call *t = arg;

    (void)action;
    if (err || !sb || !sb->conn)
        copy_call_finish(t, err ? err : &gone_err, &none);
    else
        copy_dial_launch(t);
}

static int copy_dial_check_up(const struct sandbox *sb, struct err *err)
{
    if (sb->state != SANDBOX_STOPPED && sb->state != SANDBOX_FAILED &&
        sb->state != SANDBOX_STOPPING)
        return 0;
    err_set(err, ERR_CONFLICT, "sandbox '%s' is %s", sb->name, sandbox_state_name(sb->state));
    return err_hint(err,
                    "Start it with 'ripcord up %s', or let requests start it: 'Ripcord-Wake: 1' "
                    "for programs, 'ripcord port --url --wake' for links.",
                    sb->name);
}

/* Starts the sandbox first when it does not run. Takes `call`, also on failure. */
static int copy_dial_start(struct manager *m, const char *name, struct copy_call *call,
                           struct err *err)
{
    _cleanup_(copy_call_freep) struct copy_call *owned = call;
    struct sandbox *sb = manager_find(m, name, err);
    struct op *op;

    if (!sb)
        return err ? -(int)err->code : -ERR_NOT_FOUND;
    if (!sb->ops && sandbox_check_awake(sb, err) < 0)
        return -ERR_CONFLICT;
    if (call->sleeps && copy_dial_check_up(sb, err) < 0)
        return -ERR_CONFLICT;
    if (sb->n_transfers >= TRANSFERS_MAX)
        return err_set(err, ERR_LIMIT, "sandbox '%s': too many copies and connections (limit %d)",
                       sb->name, TRANSFERS_MAX);
    call->sb = sb;
    call->next = sb->transfers;
    sb->transfers = TAKE_PTR(owned);
    sb->n_transfers++;
    if (sb->state == SANDBOX_RUNNING && sb->conn && !sb->ops) {
        copy_dial_launch(call);
        return 0;
    }
    op = op_push(sb, &op_ensure);
    op->existing = true;
    op_wait(op, copy_dial_sandbox_ready, call);
    return 0;
}

int manager_copy(struct manager *m, const char *name, const struct sup_copy *copy, int tar_fd,
                 copy_done_fn done, void *arg, struct err *err)
{
    _cleanup_(copy_call_freep) struct copy_call *call = xnew0(struct copy_call);
    int r;

    *call = (struct copy_call){.copy = *copy, .tar_fd = tar_fd, .done = done, .arg = arg};
    call->copy.path = xstrdup(copy->path);
    call->copy.user = copy->user ? xstrdup(copy->user) : NULL;
    call->copy.owner = copy->owner ? xstrdup(copy->owner) : NULL;
    if (copy->path[0] != '/')
        return err_set(err, ERR_INVALID, "path '%.80s' is not absolute", copy->path);
    r = copy->into ? disk_floor_check(m, err) : 0;
    if (r < 0)
        return r;
    return copy_dial_start(m, name, TAKE_PTR(call), err);
}

int manager_files(struct manager *m, const char *name, const char *user, bool writes, int fd,
                  copy_done_fn done, void *arg, struct err *err)
{
    _cleanup_(copy_call_freep) struct copy_call *call = xnew0(struct copy_call);
    int r;

    *call = (struct copy_call){.files = true, .tar_fd = fd, .done = done, .arg = arg};
    call->copy.user = user ? xstrdup(user) : NULL;
    r = writes ? disk_floor_check(m, err) : 0;
    if (r < 0)
        return r;
    return copy_dial_start(m, name, TAKE_PTR(call), err);
}

int manager_dial(struct manager *m, const char *name, uint16_t port, bool wake, copy_done_fn done,
                 void *arg, struct err *err)
{
    struct copy_call *call = xnew0(struct copy_call);

    *call =
        (struct copy_call){.tar_fd = -1, .port = port, .sleeps = !wake, .done = done, .arg = arg};
    return copy_dial_start(m, name, call, err);
}

void manager_touch(struct manager *m, const char *name)
{
    struct sandbox *sb = manager_find(m, name, NULL);

    if (sb)
        lease_touch(sb);
}
