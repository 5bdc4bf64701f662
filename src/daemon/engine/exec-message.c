#include "daemon/engine/exec-message.h"

#include "daemon/engine/exec-request.h"
#include "lib/base/macro.h"
#include "proto/handover.h"

static void exec_message_put_nonzero(struct sup_writer *w, uint16_t tag, uint64_t v)
{
    if (v)
        sup_put_u64(w, tag, v);
}

/* All fields except the command's strings. */
static void exec_message_put_rest(struct sup_writer *w, const struct exec_request *req)
{
    uint64_t flags = 0;

    flags |= req->want_stdin || req->input ? SUP_EXEC_STDIN : 0;
    flags |= req->tty ? SUP_EXEC_TTY : 0;
    flags |= req->attach ? SUP_EXEC_ATTACH : 0;
    flags |= req->merged ? SUP_EXEC_MERGED : 0;
    sup_put_str(w, SUP_TAG_EXEC, req->id);
    sup_put_str(w, SUP_TAG_CWD, req->cwd);
    sup_put_str(w, SUP_TAG_USER, req->user);
    sup_put_u64(w, SUP_TAG_FLAGS, flags);
    exec_message_put_nonzero(w, SUP_TAG_TIMEOUT, req->timeout);
    exec_message_put_nonzero(w, SUP_TAG_IDLE_TIMEOUT, req->idle_timeout);
    exec_message_put_nonzero(w, SUP_TAG_ROWS, req->rows);
    exec_message_put_nonzero(w, SUP_TAG_COLS, req->cols);
}

static void exec_message_put_command(struct sup_writer *w, const struct exec_request *req)
{
    for (char **a = req->argv; a && *a; a++)
        sup_put_str(w, SUP_TAG_ARG, *a);
    for (char **v = req->env; v && *v; v++)
        sup_put_str(w, SUP_TAG_ENV, *v);
}

static int exec_message_make_handover(const struct exec_request *req, bool large, int *ret_fd,
                                      struct err *err)
{
    struct handover_secret secrets[HANDOVER_SECRETS_MAX];
    const struct handover_parts parts = {.input = req->input,
                                         .input_len = req->input_len,
                                         .secrets = secrets,
                                         .n_secrets = req->n_secrets,
                                         .argv = large ? req->argv : NULL,
                                         .env = large ? req->env : NULL};

    if (req->n_secrets > ARRAY_SIZE(secrets))
        return err_set(err, ERR_LIMIT, "%zu secrets, at most %d are allowed", req->n_secrets,
                       HANDOVER_SECRETS_MAX);
    for (size_t i = 0; i < req->n_secrets; i++) {
        const struct exec_secret *s = &req->secrets[i];

        secrets[i] =
            (struct handover_secret){s->name,     s->value, s->len, s->target, s->has_owner,
                                     s->has_mode, s->uid,   s->gid, s->mode};
    }
    return handover_make(&parts, ret_fd, err);
}

/* Only a message that is made shows whether it is too large. Most are small. */
int exec_message_make(struct sup_writer *w, uint64_t seq, const struct exec_request *req,
                      int *ret_fd, struct err *err)
{
    enum sup_msg_type type = req->input || req->n_secrets ? SUP_EXEC_FED : SUP_EXEC;

    *ret_fd = -1;
    sup_begin(w, type, seq);
    exec_message_put_rest(w, req);
    exec_message_put_command(w, req);
    if (w->overflow) {
        type = SUP_EXEC_LARGE;
        sup_writer_done(w);
        sup_begin(w, type, seq);
        exec_message_put_rest(w, req);
    }
    return type == SUP_EXEC ? 0
                            : exec_message_make_handover(req, type == SUP_EXEC_LARGE, ret_fd, err);
}

bool exec_message_is_large(const struct exec_request *req)
{
    struct sup_writer w;
    bool large;

    sup_begin(&w, SUP_EXEC, 0);
    exec_message_put_rest(&w, req);
    exec_message_put_command(&w, req);
    large = w.overflow;
    sup_writer_done(&w);
    return large;
}
