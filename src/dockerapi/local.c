/*
 * Replaces net.c and tls.c in programs that use unix sockets only.
 */
#include "dockerapi/net.h"
#include "lib/base/cleanup.h"

static int local_unsupported(const struct docker_endpoint *e, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "engine at '%s': this program supports unix sockets only",
                   e->host);
}

int docker_net_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                    struct err *err)
{
    (void)by;
    (void)ret;
    return local_unsupported(e, err);
}

int docker_tls_new(const struct docker_endpoint *e, void **ret, struct err *err)
{
    (void)ret;
    return local_unsupported(e, err);
}

void docker_tls_free(void *tls)
{
    (void)tls;
}

int docker_tls_wrap(void *tls, const struct docker_endpoint *e, int fd, const struct deadline *by,
                    int *ret, struct err *err)
{
    (void)tls;
    (void)by;
    (void)ret;
    fd_close(fd);
    return local_unsupported(e, err);
}
