#include "daemon/engine/docker/layers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/volumes.h"
#include "daemon/engine/engine-caches.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/tar.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

/* Beside an upper layer: what it lies over when its tool has no base. */
#define NOTHING "none"

enum { AGENT = 1000, NOTE_MAX = 8192, PIECE = 1 << 16 };

/* ---- which base ---- */

static char *docker_layers_note_path(const struct docker_engine *d, const char *tool)
{
    return xasprintf("%s/docker/bases/%s", d->state_dir, tool);
}

/* "volume\npath\n". False: the tool has none. */
static bool docker_layers_read_note(const struct docker_engine *d, const char *tool,
                                    char **ret_volume, char **ret_path)
{
    _cleanup_free_ char *file = docker_layers_note_path(d, tool), *text = NULL;
    char *line, *end;

    if (file_read(AT_FDCWD, file, NOTE_MAX, &text, NULL, NULL) < 0)
        return false;
    line = strchr(text, '\n');
    end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
        return false;
    *line = *end = '\0';
    *ret_volume = xstrdup(text);
    *ret_path = xstrdup(line + 1);
    return true;
}

static int docker_layers_write_note(const struct docker_engine *d, const char *tool,
                                    const char *volume, const char *path, struct err *err)
{
    _cleanup_free_ char *dir = xasprintf("%s/docker/bases", d->state_dir);
    _cleanup_free_ char *file = docker_layers_note_path(d, tool);
    _cleanup_free_ char *text = xasprintf("%s\n%s\n", volume, path);
    int r = dir_make_all(AT_FDCWD, dir, 0700, err);

    return r < 0 ? r : file_replace(AT_FDCWD, file, text, strlen(text), 0600, true, err);
}

/* ---- a sandbox's layer ---- */

static int docker_layers_to_buf(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len) < 0 ? -ENOBUFS : 0;
}

static int docker_layers_put(struct tar_writer *w, enum tar_type type, const char *path,
                             unsigned uid, mode_t mode, struct err *err)
{
    struct tar_entry e = {.type = type, .mode = mode, .uid = uid, .gid = uid};

    snprintf(e.path, sizeof(e.path), "%s", path);
    return tar_put(w, &e, err);
}

/* Where a folder is to be empty, a file takes its place first: engines replace a folder by a file
 * with all that is in it. */
static int docker_layers_fill_upper(struct docker_engine *d, const char *volume, uint32_t owner,
                                    bool anew, const struct deadline *by, struct err *err)
{
    _cleanup_buf_ struct buf tar = BUF_INIT(64 << 10);
    struct docker_source source;
    struct tar_writer w;
    int r = 0;

    tar_writer_init(&w, docker_layers_to_buf, &tar);
    if (anew)
        r = docker_layers_put(&w, TAR_FILE, "upper", owner, 0644, err);
    if (r >= 0)
        r = docker_layers_put(&w, TAR_DIR, "upper", owner, 0755, err);
    if (r >= 0)
        r = docker_layers_put(&w, TAR_DIR, "work", 0, 0700, err);
    if (r >= 0)
        r = docker_layers_put(&w, TAR_DIR, NOTHING, AGENT, 0755, err);
    if (r >= 0)
        r = tar_finish(&w, err);
    if (r < 0)
        return r;
    source = (struct docker_source){.data = buf_data(&tar), .len = tar.len, .fd = -1};
    return volume_fill(d, volume, &source, by, err);
}

/* What overlayfs takes for a separator cannot be part of a name. */
static int docker_layers_check_paths(const char *base, const char *upper, struct err *err)
{
    if (*base == '/' && *upper == '/' && !strpbrk(base, ",:\\") && !strpbrk(upper, ",:\\"))
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "the engine keeps volumes at '%s', where none can be laid "
                   "over another",
                   upper);
}

static char *docker_layers_upper_name(const struct docker_engine *d,
                                      const struct sandbox_request *req, const struct cache_tool *t)
{
    return xasprintf("%s-upper-%s.%s", d->prefix, req->name, t->name);
}

/* base NULL: there is none. */
static int docker_layers_make_layer(struct docker_engine *d, const struct sandbox_request *req,
                                    const struct cache_tool *t, const char *base,
                                    const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_free_ char *upper = docker_layers_upper_name(d, req, t), *at = NULL, *options = NULL;
    _cleanup_free_ char *name = xasprintf("%s-layer-%s.%s", d->prefix, req->name, t->name);
    bool anew = cache_mode_of(&req->spec, t) == CACHE_READONLY;
    int r;

    r = volume_make(d, &(struct volume_wish){.name = upper, .id = req->id}, by, &at, err);
    if (r >= 0)
        r = docker_layers_check_paths(base ? base : at, at, err);
    if (r >= 0)
        r = docker_layers_fill_upper(d, upper, cache_owner(&req->spec), anew, by, err);
    if (r < 0)
        return r;
    options = xasprintf("lowerdir=%s/%s,upperdir=%s/upper,workdir=%s/work,nosuid,nodev",
                        base ? base : at, base ? t->name : NOTHING, at, at);
    r = volume_make(d, &(struct volume_wish){.name = name, .id = req->id, .overlay = options}, by,
                    NULL, err);
    if (r >= 0)
        *ret = TAKE_PTR(name);
    return r;
}

int layer_ensure(struct docker_engine *d, const struct sandbox_request *req,
                 const struct cache_tool *t, const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_free_ char *volume = NULL, *base = NULL;
    int r;

    if (!docker_layers_read_note(d, t->name, &volume, &base) &&
        cache_mode_of(&req->spec, t) != CACHE_READONLY)
        return 0;
    r = docker_layers_make_layer(d, req, t, base, by, ret, err);
    return r < 0 ? r : 1;
}

int layers_renew(struct docker_engine *d, const struct sandbox_request *req,
                 const struct deadline *by, struct err *err)
{
    const struct cache_tool *t;
    int r = 0;

    for (size_t i = 0; r >= 0 && (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *upper = docker_layers_upper_name(d, req, t);

        if (cache_mode_of(&req->spec, t) == CACHE_READONLY && volume_exists(d, upper, req->id, by))
            r = docker_layers_fill_upper(d, upper, cache_owner(&req->spec), true, by, err);
    }
    return r < 0 ? err_wrap(err, "empty the caches of sandbox '%s'", req->name) : 0;
}

/* ---- a new base ---- */

static ssize_t docker_layers_read_fd(void *arg, void *data, size_t len)
{
    return fd_read_full(*(const int *)arg, data, len);
}

static int docker_layers_write_fd(void *arg, const void *data, size_t len)
{
    return fd_write_all(*(const int *)arg, data, len);
}

/* Only what lies in the tool's folder, and nothing but folders, files and links. */
static bool docker_layers_is_taken(const struct tar_entry *e, const char *tool)
{
    size_t len = strlen(tool);
    bool below = strncmp(e->path, tool, len) == 0 && (!e->path[len] || e->path[len] == '/');

    return below && (e->type == TAR_DIR || e->type == TAR_FILE || e->type == TAR_SYMLINK);
}

/* The agent's, and for everybody to write to: which is always to a copy. */
static void docker_layers_open_up(struct tar_entry *e)
{
    e->uid = e->gid = AGENT;
    if (e->type != TAR_SYMLINK)
        e->mode = e->type == TAR_DIR || e->mode & 0111 ? 0777 : 0666;
}

static int docker_layers_copy_data(struct tar_reader *in, struct tar_writer *out, struct err *err)
{
    char piece[PIECE];
    ssize_t n;
    int r = 0;

    while (r >= 0 && (n = tar_read(in, piece, sizeof(piece), err)) != 0)
        r = n < 0 ? (int)n : tar_write(out, piece, (size_t)n, err);
    return r;
}

static int docker_layers_rewrite(int from, int to, const char *tool, struct err *err)
{
    struct tar_entry *e = xnew0(struct tar_entry);
    struct tar_reader in;
    struct tar_writer out;
    int r;

    tar_reader_init(&in, docker_layers_read_fd, &from);
    tar_writer_init(&out, docker_layers_write_fd, &to);
    while ((r = tar_next(&in, e, err)) > 0) {
        if (!docker_layers_is_taken(e, tool))
            continue;
        docker_layers_open_up(e);
        r = tar_put(&out, e, err);
        if (r >= 0 && e->type == TAR_FILE)
            r = docker_layers_copy_data(&in, &out, err);
        if (r < 0)
            break;
    }
    free(e);
    return r < 0 ? r : tar_finish(&out, err);
}

static int docker_layers_fill_base(struct docker_engine *d, const char *volume, const char *tool,
                                   int tar_fd, const struct deadline *by, struct err *err)
{
    _cleanup_close_ int fd = open(d->state_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct docker_source source = {.fd = fd};
    int r;

    if (fd < 0)
        return err_sys(err, errno, "make a file in '%s'", d->state_dir);
    r = docker_layers_rewrite(tar_fd, fd, tool, err);
    if (r >= 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = err_sys(err, errno, "read the archive");
    return r < 0 ? r : volume_fill(d, volume, &source, by, err);
}

int docker_cache_publish(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_free_ char *name =
        xasprintf("%s-base-%s-%llx", d->prefix, tool, (unsigned long long)time_wall());
    _cleanup_free_ char *path = NULL;
    int r;

    r = volume_make(d, &(struct volume_wish){.name = name, .base = tool}, by, &path, err);
    if (r < 0)
        return r;
    r = docker_layers_fill_base(d, name, tool, tar_fd, by, err);
    if (r >= 0)
        r = docker_layers_write_note(d, tool, name, path, err);
    if (r < 0)
        volume_remove(d, name, by, NULL);
    else
        bases_sweep(d, tool, name, by);
    return r < 0 ? err_wrap(err, "make a new base of the cache of '%s'", tool) : 0;
}

/* ---- less, and how much ---- */

int docker_cache_drop(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err)
{
    struct docker_engine *d = docker_of(e);
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *file = docker_layers_note_path(d, t->name);

        if (*tool && !STREQ(t->name, tool))
            continue;
        if (unlink(file) < 0 && errno != ENOENT)
            return err_sys(err, errno, "remove '%s'", file);
        bases_sweep(d, t->name, "", by);
    }
    return shared_remove(d, tool, by, err);
}

int docker_cache_list(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err)
{
    struct docker_engine *d = docker_of(e);
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *volume = NULL, *path = NULL;

        if (docker_layers_read_note(d, t->name, &volume, &path))
            engine_caches_add(ret, ENGINE_CACHE_BASE, t->name, "")->bytes =
                volume_usage(d, path, by);
    }
    return volumes_list(d, by, ret, err);
}

void layers_tidy(struct docker_engine *d, const struct deadline *by)
{
    helpers_remove(d, by);
}
