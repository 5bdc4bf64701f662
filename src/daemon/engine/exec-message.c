#include "daemon/engine/exec-message.h"

#include "daemon/engine/exec-request.h"
#include "lib/base/macro.h"
#include "proto/handover.h"

static void exec_message_put_nonzero(struct sup_writer *w, uint16_t tag, uint64_t v)
{
    if (v)
        sup_put_u64(w, tag, v);
}

void exec_message_put(struct sup_writer *w, const struct exec_request *req)
{
    uint64_t flags = 0;

    flags |= req->want_stdin || req->input ? SUP_EXEC_STDIN : 0;
    flags |= req->tty ? SUP_EXEC_TTY : 0;
    flags |= req->attach ? SUP_EXEC_ATTACH : 0;
    sup_put_str(w, SUP_TAG_EXEC, req->id);
    for (char **a = req->argv; a && *a; a++)
        sup_put_str(w, SUP_TAG_ARG, *a);
    for (char **v = req->env; v && *v; v++)
        sup_put_str(w, SUP_TAG_ENV, *v);
    sup_put_str(w, SUP_TAG_CWD, req->cwd);
    sup_put_str(w, SUP_TAG_USER, req->user);
    sup_put_u64(w, SUP_TAG_FLAGS, flags);
    exec_message_put_nonzero(w, SUP_TAG_TIMEOUT, req->timeout);
    exec_message_put_nonzero(w, SUP_TAG_IDLE_TIMEOUT, req->idle_timeout);
    exec_message_put_nonzero(w, SUP_TAG_ROWS, req->rows);
    exec_message_put_nonzero(w, SUP_TAG_COLS, req->cols);
}

enum sup_msg_type exec_message_type(const struct exec_request *req)
{
    return req->input || req->n_secrets ? SUP_EXEC_FED : SUP_EXEC;
}

int exec_message_handover(const struct exec_request *req, int *ret_fd, struct err *err)
{
    struct handover_secret secrets[HANDOVER_SECRETS_MAX];

    *ret_fd = -1;
    if (exec_message_type(req) == SUP_EXEC)
        return 0;
    if (req->n_secrets > ARRAY_SIZE(secrets))
        return err_set(err, ERR_LIMIT, "%zu secrets, at most %d are allowed", req->n_secrets,
                       HANDOVER_SECRETS_MAX);
    for (size_t i = 0; i < req->n_secrets; i++) {
        const struct exec_secret *s = &req->secrets[i];

        secrets[i] =
            (struct handover_secret){s->name,     s->value, s->len, s->target, s->has_owner,
                                     s->has_mode, s->uid,   s->gid, s->mode};
    }
    return handover_make(req->input, req->input_len, secrets, req->n_secrets, ret_fd, err);
}
