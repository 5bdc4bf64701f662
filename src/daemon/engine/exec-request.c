#include "daemon/engine/exec-request.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static void exec_request_wipe_text(char *p, size_t len)
{
    if (p)
        explicit_bzero(p, len);
    free(p);
}

void exec_request_wipe(struct exec_request *r)
{
    for (char **e = r->env; e && *e; e++)
        explicit_bzero(*e, strlen(*e));
    strv_free(TAKE_PTR(r->env));
    exec_request_wipe_text(TAKE_PTR(r->input), r->input_len);
    for (size_t i = 0; i < r->n_secrets; i++) {
        exec_request_wipe_text(r->secrets[i].value, r->secrets[i].len);
        free(r->secrets[i].name);
        free(r->secrets[i].target);
    }
    free(TAKE_PTR(r->secrets));
    r->n_secrets = r->input_len = 0;
}

void exec_request_done(struct exec_request *r)
{
    if (!r)
        return;
    exec_request_wipe(r);
    strv_free(r->argv);
    free(r->cwd);
    free(r->user);
    *r = (struct exec_request){0};
}

static struct exec_secret *exec_request_copy_secrets(const struct exec_secret *src, size_t n)
{
    struct exec_secret *dst = n ? xcalloc(n, sizeof(*dst)) : NULL;

    for (size_t i = 0; i < n; i++) {
        dst[i] = src[i];
        dst[i].name = xstrdup(src[i].name);
        dst[i].value = xmemdup(src[i].value, src[i].len);
        dst[i].target = src[i].target ? xstrdup(src[i].target) : NULL;
    }
    return dst;
}

struct exec_request *exec_request_copy(const struct exec_request *src)
{
    struct exec_request *r = xnew0(struct exec_request);

    *r = *src;
    r->argv = strv_copy(src->argv);
    r->env = strv_copy(src->env);
    r->cwd = src->cwd ? xstrdup(src->cwd) : NULL;
    r->user = src->user ? xstrdup(src->user) : NULL;
    r->input = src->input ? xmemdup(src->input, src->input_len) : NULL;
    r->secrets = exec_request_copy_secrets(src->secrets, src->n_secrets);
    return r;
}
