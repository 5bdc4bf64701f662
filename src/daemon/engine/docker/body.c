#include "daemon/engine/docker/body.h"

#include <string.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/docker/backend.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"
#include "proto/guest.h"

#define GUEST_PATH "/.ripcord/guest"
enum { AGENT_UID = 1000, LOG_FILES = 1, SECRETS_SIZE = 4 << 20 };

static json_t *body_number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* ---- limits ---- */

static json_t *body_ulimit(const char *name, uint64_t v)
{
    return json_pack("{s:s, s:I, s:I}", "Name", name, "Soft", (json_int_t)v, "Hard", (json_int_t)v);
}

/*
 * RLIMIT_NPROC counts all processes of a uid on the machine, and all sandboxes have the same uid.
 * The pids limit of one sandbox would therefore limit all of them together. The value is only a
 * second barrier against a flood of processes, behind PidsLimit.
 */
static json_t *body_ulimits(const struct body_parts *p)
{
    const struct sandbox_spec *spec = &p->req->spec;
    json_t *a = json_array();

    json_array_append_new(a, body_ulimit("core", 0));
    json_array_append_new(a, body_ulimit("nofile", MIN((uint64_t)spec->nofile, p->nofile_max)));
    json_array_append_new(a, body_ulimit("nproc", p->nproc_max));
    return a;
}

static void body_set_limits(json_t *host, const struct body_parts *p)
{
    const struct sandbox_spec *spec = &p->req->spec;
    uint64_t milli = spec->cpu_milli;

    if (p->cpus) /* Docker refuses more processors than the machine has */
        milli = MIN(milli, (uint64_t)p->cpus * 1000);
    if (p->caps & ENGINE_CAP_MEMORY_LIMIT) { /* equal values: no swap */
        json_object_set_new(host, "Memory", body_number(spec->memory));
        json_object_set_new(host, "MemorySwap", body_number(spec->memory));
    }
    if (p->caps & ENGINE_CAP_CPU_LIMIT)
        json_object_set_new(host, "NanoCpus", body_number(milli * 1000000));
    if (p->caps & ENGINE_CAP_PIDS_LIMIT)
        json_object_set_new(host, "PidsLimit", body_number(spec->pids));
    json_object_set_new(host, "Ulimits", body_ulimits(p));
    if (spec->disk)
        json_object_set_new(
            host, "StorageOpt",
            json_pack("{s:o}", "size", json_sprintf("%llu", (unsigned long long)spec->disk)));
}

/* ---- mounts ---- */

static void body_add_tmpfs(json_t *o, const char *target, uint64_t size, const char *mode)
{
    json_object_set_new(
        o, target,
        json_sprintf("rw,nosuid,nodev,exec,size=%llu,mode=%s", (unsigned long long)size, mode));
}

static json_t *body_tmpfs(const struct sandbox_spec *spec)
{
    json_t *o = json_object();

    body_add_tmpfs(o, "/tmp", spec->tmp_size, "1777");
    body_add_tmpfs(o, "/run", spec->run_size, "0755");
    body_add_tmpfs(o, "/scratch", spec->scratch_size, "1777");
    json_object_set_new(o, "/run/secrets",
                        json_sprintf("rw,nosuid,nodev,noexec,size=%d,mode=1733", SECRETS_SIZE));
    return o;
}

static json_t *body_mounts(const struct body_parts *p)
{
    const struct sandbox_spec *spec = &p->req->spec;
    json_t *a = json_array();

    for (size_t i = 0; i < p->n_volumes; i++) {
        const struct body_volume *v = &p->volumes[i];
        /* If somebody removes the volume before this create, the engine makes it again with these
         * labels. */
        json_t *labels = json_pack("{s:s}", LABEL_ROOT, p->root_id);

        if (v->shared)
            json_object_set_new(labels, LABEL_SHARED, json_string(p->prefix));
        else
            json_object_set_new(labels, LABEL_ID, json_string(p->req->id));
        json_array_append_new(a, json_pack("{s:s, s:s, s:s, s:{s:o}}", "Type", "volume", "Source",
                                           v->name, "Target", v->target, "VolumeOptions", "Labels",
                                           labels));
    }
    for (size_t i = 0; i < spec->n_mounts; i++)
        json_array_append_new(
            a, json_pack("{s:s, s:s, s:s, s:b, s:{s:s}}", "Type", "bind", "Source",
                         spec->mounts[i].source, "Target", spec->mounts[i].target, "ReadOnly",
                         spec->mounts[i].read_only, "BindOptions", "Propagation", "rprivate"));
    return a;
}

static json_t *body_host_config(const struct body_parts *p)
{
    const struct sandbox_spec *spec = &p->req->spec;
    json_t *host = json_object(), *security = json_pack("[s]", "no-new-privileges");

    if (p->seccomp)
        json_array_append_new(security, json_sprintf("seccomp=%s", p->seccomp));
    json_object_set_new(host, "CapDrop", json_pack("[s]", "ALL"));
    json_object_set_new(host, "SecurityOpt", security);
    json_object_set_new(host, "Privileged", json_false());
    json_object_set_new(host, "CgroupnsMode", json_string("private"));
    json_object_set_new(host, "IpcMode", json_string("private"));
    json_object_set_new(host, "NetworkMode", json_string(p->network ? p->network : "none"));
    json_object_set_new(host, "RestartPolicy", json_pack("{s:s}", "Name", "no"));
    json_object_set_new(host, "AutoRemove", json_false()); /* the container must survive a crash */
    /* pid 1 writes no output. Podman's Docker API has no log driver `none`. */
    json_object_set_new(
        host, "LogConfig",
        p->podman ? json_pack("{s:s, s:{s:s}}", "Type", "k8s-file", "Config", "max-size", "64k")
                  : json_pack("{s:s}", "Type", "none"));
    json_object_set_new(host, "Tmpfs", body_tmpfs(spec));
    json_object_set_new(host, "Mounts", body_mounts(p));
    if (spec->runtime)
        json_object_set_new(host, "Runtime", json_string(spec->runtime));
    body_set_limits(host, p);
    return host;
}

/* ---- labels and identity ---- */

static json_t *body_labels(const struct body_parts *p)
{
    const struct sandbox_request *req = p->req;
    json_t *o = json_object();

    for (char **l = req->spec.labels; l && *l; l++) {
        const char *eq = strchr(*l, '=');
        _cleanup_free_ char *key = xstrndup(*l, (size_t)(eq - *l));

        json_object_set_new(o, key, json_string(eq + 1));
    }
    docker_add_label(p->label, o);
    json_object_set_new(o, LABEL_ROOT, json_string(p->root_id)); /* ours last: they win */
    json_object_set_new(o, LABEL_ID, json_string(req->id));
    json_object_set_new(o, LABEL_NAME, json_string(req->name));
    json_object_set_new(o, LABEL_HASH, json_string(req->hash));
    json_object_set_new(o, LABEL_WITHOUT, json_string(p->without));
    if (req->spec_label)
        json_object_set_new(o, LABEL_SPEC, json_string(req->spec_label));
    return o;
}

json_t *body_container(const struct body_parts *p)
{
    const struct sandbox_request *req = p->req;
    json_t *o = json_object();

    json_object_set_new(o, "Image", json_string(req->spec.image_digest));
    json_object_set_new(o, "Hostname", json_string(req->name));
    json_object_set_new(o, "User", json_string(req->spec.user));
    json_object_set_new(o, "WorkingDir", json_string("/"));
    /* Our own pid 1, in place of the engine's `Init`. */
    json_object_set_new(o, "Entrypoint", json_pack("[s]", GUEST_PATH));
    json_object_set_new(o, "Cmd", json_pack("[s]", "init"));
    json_object_set_new(o, "Healthcheck", json_pack("{s:[s]}", "Test", "NONE"));
    json_object_set_new(o, "StopSignal", json_string("SIGTERM"));
    json_object_set_new(o, "Labels", body_labels(p));
    json_object_set_new(o, "HostConfig", body_host_config(p));
    return o;
}

/* ---- the archive ---- */

static int body_to_buf(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len) < 0 ? -ENOBUFS : 0;
}

static int body_put_folder(struct tar_writer *w, const char *path, unsigned uid, mode_t mode,
                           struct err *err)
{
    struct tar_entry e = {.type = TAR_DIR, .mode = mode, .uid = uid, .gid = uid};

    snprintf(e.path, sizeof(e.path), "%s", path[0] == '/' ? path + 1 : path);
    return tar_put(w, &e, err);
}

/* The file is executable but not readable: its processes are then never dumpable, so the sandbox
 * cannot read their memory, not even right after their start. */
static int body_put_guest(struct tar_writer *w, const struct body_program *guest, struct err *err)
{
    struct tar_entry e = {
        .type = TAR_FILE, .mode = guest->readable ? 0555 : 0111, .size = guest->len};
    int r;

    snprintf(e.path, sizeof(e.path), "%s", &GUEST_PATH[1]);
    r = body_put_folder(w, "/.ripcord", 0, 0555, err);
    if (r < 0)
        return r;
    r = tar_put(w, &e, err);
    if (r < 0)
        return r;
    return tar_write(w, guest->data, guest->len, err);
}

/* ripcord-guest looks for it. Only root could remove it, and root does not get in. */
static int body_put_no_root(struct tar_writer *w, struct err *err)
{
    struct tar_entry e = {.type = TAR_FILE, .mode = 0444};

    snprintf(e.path, sizeof(e.path), "%s", &GUEST_NO_ROOT[1]);
    return tar_put(w, &e, err);
}

/* Tools refuse a cache that another user owns. A shared cache is writable for all users. */
static int body_put_cache_folders(struct tar_writer *w, const struct body_volume *v, uint32_t owner,
                                  struct err *err)
{
    const struct cache_tool *t;
    size_t len = strlen(v->target);
    int r = body_put_folder(w, v->target, owner, v->shared ? 0777 : 0755, err);

    if (r < 0)
        return r;
    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        if (strncmp(t->target, v->target, len) != 0 || t->target[len] != '/')
            continue;
        r = body_put_folder(w, t->target, owner, 0755, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int body_guest(const struct body_program *guest, struct buf *ret, struct err *err)
{
    struct tar_writer w;
    int r;

    tar_writer_init(&w, body_to_buf, ret);
    r = body_put_guest(&w, guest, err);
    return r < 0 ? r : tar_finish(&w, err);
}

int body_archive(const struct body_parts *p, const struct body_program *guest, struct buf *ret,
                 struct err *err)
{
    struct tar_writer w;
    int r;

    tar_writer_init(&w, body_to_buf, ret);
    r = body_put_guest(&w, guest, err);
    if (r < 0)
        return r;
    r = p->no_root ? body_put_no_root(&w, err) : 0;
    if (r < 0)
        return r;
    r = body_put_folder(&w, "/home/agent", AGENT_UID, 0755, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < p->n_volumes; i++) {
        if (STREQ(p->volumes[i].target, "/home/agent"))
            continue;
        r = body_put_cache_folders(&w, &p->volumes[i], cache_owner(&p->req->spec), err);
        if (r < 0)
            return r;
    }
    return tar_finish(&w, err);
}
