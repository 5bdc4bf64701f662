/*
 * An explicit setting is final: if DOCKER_HOST does not answer, that is an error. Trying other
 * sockets could silently use the wrong engine.
 */
#include <stdlib.h>
#include <string.h>

#include "dockerapi/connect.h"
#include "dockerapi/endpoint.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { PROBE_SECONDS = 2 };

/* A variable that is set and not empty. */
static const char *find_env_get(docker_env_fn env, const char *name)
{
    const char *v = env(name);

    return v && *v ? v : NULL;
}

/* Docker's rule for the folder of certificates. Unlike its CLI, we always verify them. */
static int find_add_tls(struct docker_endpoint *e, docker_env_fn env, struct err *err)
{
    const char *certs = find_env_get(env, "DOCKER_CERT_PATH"), *home = find_env_get(env, "HOME");
    _cleanup_free_ char *folder = NULL;

    if (e->transport == DOCKER_UNIX || e->certs)
        return 0;
    if (e->transport == DOCKER_TCP && !certs && !find_env_get(env, "DOCKER_TLS_VERIFY"))
        return 0;
    if (certs)
        folder = xstrdup(certs);
    else if (home)
        folder = xasprintf("%s/.docker", home);
    if (!folder || folder[0] != '/') {
        err_set(err, ERR_INVALID,
                "TLS is requested, but the folder of the certificates is not set");
        return err_hint(err, "Set DOCKER_CERT_PATH to the folder with ca.pem, cert.pem, key.pem.");
    }
    docker_endpoint_use_tls(e, folder);
    return 0;
}

static int find_take(const char *text, const char *source, docker_env_fn env,
                     struct docker_endpoint *ret, struct err *err)
{
    _cleanup_endpoint_ struct docker_endpoint e = {0};

    if (docker_endpoint_parse(text, &e, err) < 0 || find_add_tls(&e, env, err) < 0)
        return err_wrap(err, "%s", source);
    *ret = e;
    e = (struct docker_endpoint){0};
    return 0;
}

static char **find_usual_sockets(docker_env_fn env)
{
    const char *run = find_env_get(env, "XDG_RUNTIME_DIR");
    char **v = NULL;

    strv_add(&v, "/var/run/docker.sock");
    if (run && run[0] == '/')
        strv_push(&v, xasprintf("%s/docker.sock", run));
    strv_add(&v, "/run/podman/podman.sock");
    if (run && run[0] == '/')
        strv_push(&v, xasprintf("%s/podman/podman.sock", run));
    return v;
}

static bool find_accepts(const char *path, char ***tried)
{
    struct docker_endpoint e = {.transport = DOCKER_UNIX, .path = (char *)path};
    struct deadline by = deadline_in(PROBE_SECONDS * USEC_PER_SEC);
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;

    if (docker_dial(&e, &by, &fd, &err) >= 0)
        return true;
    strv_push(tried, xasprintf("%s (%s)", path, err.errnum ? strerror(err.errnum) : err.msg));
    return false;
}

static int find_usual(docker_env_fn env, struct docker_endpoint *ret, struct err *err)
{
    _cleanup_strv_ char **sockets = find_usual_sockets(env), **tried = NULL;
    _cleanup_free_ char *list = NULL;

    for (char **s = sockets; *s; s++)
        if (find_accepts(*s, &tried)) {
            *ret = (struct docker_endpoint){.transport = DOCKER_UNIX, .path = xstrdup(*s)};
            return 0;
        }
    list = strv_join(tried, ", ");
    err_set(err, ERR_ENGINE, "no Docker or Podman engine found (tried %s)", list);
    return err_hint(err, "Start one ('systemctl start docker', 'systemctl --user start "
                         "podman.socket'), join its group, or set DOCKER_HOST.");
}

int docker_endpoint_find(const char *configured, docker_env_fn env, struct docker_endpoint *ret,
                         struct err *err)
{
    static const char *const names[] = {"DOCKER_HOST", "CONTAINER_HOST"};

    if (configured && *configured)
        return find_take(configured, "configured engine", env, ret, err);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (find_env_get(env, names[i]))
            return find_take(find_env_get(env, names[i]), names[i], env, ret, err);
    return find_usual(env, ret, err);
}
