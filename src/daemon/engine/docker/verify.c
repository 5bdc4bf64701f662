/*
 * engine_ops.verify: checks of a spec that ask the engine and change nothing. The account of a user
 * is looked up in a container of the image that is never started, because the engine shows an
 * image's files only there.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/layers.h"
#include "daemon/engine/docker/volumes.h"
#include "daemon/engine/engine-check.h"
#include "daemon/engine/mounts.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"

enum { PASSWD_MAX = 1 << 20 };

/* ---- mounts and limits ---- */

static int docker_verify_mounts(struct docker_engine *d, const struct sandbox_spec *spec,
                                struct err *err)
{
    const struct docker *c = docker_client(d);
    const char *own[] = {d->state_dir, d->run_dir, NULL, NULL, NULL};
    size_t n = 2;

    if (spec->n_mounts == 0)
        return 0;
    if (c->endpoint.transport != DOCKER_UNIX) {
        err_set(err, ERR_UNSUPPORTED,
                "mounts: the engine at '%s' cannot mount folders of this machine", c->where);
        return err_hint(err, "Use 'ripcord cp' to copy files into the sandbox.");
    }
    own[n++] = c->endpoint.path;
    if (d->data_dir)
        own[n] = d->data_dir;
    for (size_t i = 0; i < spec->n_mounts; i++) {
        struct mount_source src;
        int r = mount_source_check(spec->mounts[i].source, own, &src, err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* The daemon's own limit stands for that of the engine, which runs on the same machine. */
uint64_t docker_hard_limit(int resource, uint64_t most)
{
    struct rlimit rl;

    if (getrlimit(resource, &rl) < 0 || rl.rlim_max == RLIM_INFINITY)
        return most;
    return MIN((uint64_t)rl.rlim_max, most);
}

static int docker_verify_nofile(const struct sandbox_spec *spec, struct err *err)
{
    uint64_t most = docker_hard_limit(RLIMIT_NOFILE, UINT32_MAX);

    if (!(spec->asked & LIMIT_NOFILE) || spec->nofile <= most)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "nofile: %u open files requested, but this machine allows %llu",
            spec->nofile, (unsigned long long)most);
    return err_hint(err, "Request fewer with 'nofile', or raise the hard limit of the engine.");
}

int docker_verify_spec(struct docker_engine *d, const struct sandbox_spec *spec, struct err *err)
{
    int r = docker_verify_mounts(d, spec, err);

    return r < 0 ? r : docker_verify_nofile(spec, err);
}

/* ---- the runtime ---- */

static char *docker_verify_names(const json_t *object)
{
    _cleanup_strv_ char **names = NULL;
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)object, key, value)
        strv_add(&names, key);
    return strv_join(names, ", ");
}

/* A name with a dot or a slash is a program of containerd, which the engine does not list. */
static int docker_verify_runtime(struct docker_engine *d, const struct sandbox_spec *spec,
                                 const struct deadline *by, struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_free_ char *known = NULL;
    const json_t *runtimes;
    int r;

    if (!spec->runtime || strpbrk(spec->runtime, "./"))
        return 0;
    r = docker_ask(d, "GET", "/info", NULL, by, &reply, err);
    if (r < 0)
        return err_wrap(err, "read the engine's runtimes");
    runtimes = json_object_get(reply.json, "Runtimes");
    if (json_object_size(runtimes) == 0 || json_object_get(runtimes, spec->runtime))
        return 0;
    known = docker_verify_names(runtimes);
    err_set(err, ERR_NOT_FOUND, "runtime '%s': the engine does not have it", spec->runtime);
    return err_hint(err, "Use one of its runtimes: %s.", known);
}

/* ---- the user ---- */

static ssize_t docker_verify_read_fd(void *arg, void *data, size_t len)
{
    return fd_read_full(*(const int *)arg, data, len);
}

/* Whether a line "name:" is in the text. */
static bool docker_verify_lists(const char *passwd, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = passwd; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            return true;
    return false;
}

/* True also if the archive shows no plain file: then only a start shows whether the user exists. */
static bool docker_verify_archive_lists(int fd, const char *name)
{
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);
    _cleanup_free_ char *text = xcalloc(1, PASSWD_MAX + 1);
    struct tar_reader in;
    ssize_t n;

    if (lseek(fd, 0, SEEK_SET) < 0)
        return true;
    tar_reader_init(&in, docker_verify_read_fd, &fd);
    if (tar_next(&in, e, NULL) <= 0 || e->type != TAR_FILE || e->size > PASSWD_MAX)
        return true;
    n = tar_read(&in, text, PASSWD_MAX, NULL);
    return n < 0 || docker_verify_lists(text, name);
}

/* 1: the container has the account, or that cannot be found out. */
static int docker_verify_ask(struct docker_engine *d, const char *container, const char *name,
                             const struct deadline *by, struct err *err)
{
    _cleanup_close_ int fd = memfd_create("passwd", MFD_CLOEXEC);
    _cleanup_free_ char *path = docker_path("/containers/%s/archive?path=/etc/passwd", container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_err_ struct err why = ERR_INIT;
    struct deadline one = docker_by(d, by);
    int r;

    if (fd < 0)
        return err_sys(err, errno, "create a file in memory");
    r = docker_download(docker_client(d), path, fd, PASSWD_MAX + MIB(1), &one, &reply, &why);
    if (r < 0 && reply.status == 404) /* no such file */
        return 0;
    if (r < 0)
        return err_move(err, &why);
    return docker_verify_archive_lists(fd, name);
}

static int docker_verify_user(struct docker_engine *d, const struct sandbox_spec *spec,
                              const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *container = NULL;
    _cleanup_err_ struct err undo = ERR_INIT;
    int r;

    if (!engine_check_needs_account(spec) || !spec->image_digest)
        return 0;
    r = helper_make(d, spec->image_digest, NULL, by, &container, err);
    if (r < 0)
        return err_wrap(err, "look for user '%s' in image '%s'", spec->user, spec->image);
    r = docker_verify_ask(d, container, spec->user, by, err);
    if (container_remove(d, container, by, &undo) < 0)
        log_debug("cannot remove container %s: %s", container, undo.msg);
    return r == 0 ? engine_check_no_account(spec, err) : MIN(r, 0);
}

int docker_verify(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err)
{
    struct docker_engine *d = docker_of(e);
    int r;

    r = docker_verify_spec(d, &req->spec, err);
    if (r < 0)
        return r;
    r = docker_verify_runtime(d, &req->spec, by, err);
    return r < 0 ? r : docker_verify_user(d, &req->spec, by, err);
}
