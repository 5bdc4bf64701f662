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

/* An empty folder beside the upper layer: the lower layer if the tool has no base. */
#define EMPTY_LOWER "none"

enum { AGENT = 1000, NOTE_MAX = 8192, PIECE = 1 << 16 };

/* ---- the note of the present base ---- */

static char *docker_layers_note_path(const struct docker_engine *d, const char *tool)
{
    return xasprintf("%s/docker/bases/%s", d->state_dir, tool);
}

/* The note is "volume\npath\n". False: the tool has no base. */
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

/* To empty the folder, the archive first has a file of its name: engines replace a folder and its
 * content by the file. */
static int docker_layers_fill_upper(struct docker_engine *d, const char *volume, uint32_t owner,
                                    bool anew, const struct deadline *by, struct err *err)
{
    _cleanup_buf_ struct buf tar = BUF_INIT(64 << 10);
    struct docker_source source;
    struct tar_writer w;
    int r;

    tar_writer_init(&w, docker_layers_to_buf, &tar);
    r = anew ? docker_layers_put(&w, TAR_FILE, "upper", owner, 0644, err) : 0;
    if (r < 0)
        return r;
    r = docker_layers_put(&w, TAR_DIR, "upper", owner, 0755, err);
    if (r < 0)
        return r;
    r = docker_layers_put(&w, TAR_DIR, "work", 0, 0700, err);
    if (r < 0)
        return r;
    r = docker_layers_put(&w, TAR_DIR, EMPTY_LOWER, AGENT, 0755, err);
    if (r < 0)
        return r;
    r = tar_finish(&w, err);
    if (r < 0)
        return r;
    source = (struct docker_source){.data = buf_data(&tar), .len = tar.len, .fd = -1};
    return volume_fill(d, volume, &source, by, err);
}

/* overlayfs options use these characters as separators, so paths must not have them. */
static int docker_layers_check_paths(const char *base, const char *upper, struct err *err)
{
    if (*base == '/' && *upper == '/' && !strpbrk(base, ",:\\") && !strpbrk(upper, ",:\\"))
        return 0;
    return err_set(err, ERR_UNSUPPORTED,
                   "volume folder '%s': cannot be used with overlayfs (it must be an absolute "
                   "path without ',', ':' and '\\')",
                   upper);
}

static char *docker_layers_upper_name(const struct docker_engine *d,
                                      const struct sandbox_request *req, const struct cache_tool *t)
{
    return xasprintf("%s-upper-%s.%s", d->prefix, req->name, t->name);
}

/*
 * A volume with other options is created again. If the engine refuses that, because a container
 * that is kept during a re-creation uses it, a second name serves; layers_sweep() removes the first
 * one later.
 */
static int docker_layers_make_overlay(struct docker_engine *d, const struct sandbox_request *req,
                                      const struct cache_tool *t, const char *options,
                                      const struct deadline *by, char **ret, struct err *err)
{
    static const char *const suffixes[] = {"", ".2"};
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        _cleanup_free_ char *name =
            xasprintf("%s-layer-%s.%s%s", d->prefix, req->name, t->name, suffixes[i]);
        const struct volume_wish wish = {.name = name, .id = req->id, .overlay = options};
        _cleanup_err_ struct err why = ERR_INIT;

        r = volume_make(d, &wish, by, NULL, &why);
        if (r >= 0) {
            *ret = TAKE_PTR(name);
            return 0;
        }
        if (!req->keep || i + 1 == ARRAY_SIZE(suffixes))
            return err_move(err, &why);
    }
    return r;
}

/* base: the path of the base; NULL: the tool has none. */
static int docker_layers_make_layer(struct docker_engine *d, const struct sandbox_request *req,
                                    const struct cache_tool *t, const char *base,
                                    const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_free_ char *upper = docker_layers_upper_name(d, req, t), *at = NULL, *options = NULL;
    bool anew = cache_mode_of(&req->spec, t) == CACHE_READONLY;
    int r;

    r = volume_make(d, &(struct volume_wish){.name = upper, .id = req->id}, by, &at, err);
    if (r < 0)
        return r;
    r = docker_layers_check_paths(base ? base : at, at, err);
    if (r < 0)
        return r;
    r = docker_layers_fill_upper(d, upper, cache_owner(&req->spec), anew, by, err);
    if (r < 0)
        return r;
    options = xasprintf("lowerdir=%s/%s,upperdir=%s/upper,workdir=%s/work,nosuid,nodev",
                        base ? base : at, base ? t->name : EMPTY_LOWER, at, at);
    return docker_layers_make_overlay(d, req, t, options, by, ret, err);
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

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *upper = docker_layers_upper_name(d, req, t);

        if (cache_mode_of(&req->spec, t) != CACHE_READONLY || !volume_exists(d, upper, req->id, by))
            continue;
        if (docker_layers_fill_upper(d, upper, cache_owner(&req->spec), true, by, err) < 0)
            return err_wrap(err, "empty cache '%s' of sandbox '%s'", t->name, req->name);
    }
    return 0;
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

/* A base gets only the tool's own folder, and only folders, files and symbolic links. */
static bool docker_layers_is_wanted(const struct tar_entry *e, const char *tool)
{
    size_t len = strlen(tool);
    bool below = strncmp(e->path, tool, len) == 0 && (!e->path[len] || e->path[len] == '/');

    return below && (e->type == TAR_DIR || e->type == TAR_FILE || e->type == TAR_SYMLINK);
}

/* Owned by the agent and writable for all users: writes go to the sandbox's upper layer. */
static void docker_layers_make_writable(struct tar_entry *e)
{
    e->uid = e->gid = AGENT;
    if (e->type != TAR_SYMLINK)
        e->mode = e->type == TAR_DIR || e->mode & 0111 ? 0777 : 0666;
}

static int docker_layers_copy_data(struct tar_reader *in, struct tar_writer *out, struct err *err)
{
    char piece[PIECE];

    for (;;) {
        ssize_t n = tar_read(in, piece, sizeof(piece), err);
        int r;

        if (n <= 0)
            return (int)n;
        r = tar_write(out, piece, (size_t)n, err);
        if (r < 0)
            return r;
    }
}

static int docker_layers_rewrite(int from, int to, const char *tool, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);
    struct tar_reader in;
    struct tar_writer out;
    int r;

    tar_reader_init(&in, docker_layers_read_fd, &from);
    tar_writer_init(&out, docker_layers_write_fd, &to);
    while ((r = tar_next(&in, e, err)) > 0) {
        if (!docker_layers_is_wanted(e, tool))
            continue;
        docker_layers_make_writable(e);
        r = tar_put(&out, e, err);
        if (r < 0)
            return r;
        if (e->type != TAR_FILE)
            continue;
        r = docker_layers_copy_data(&in, &out, err);
        if (r < 0)
            return r;
    }
    return r < 0 ? r : tar_finish(&out, err);
}

static int docker_layers_fill_base(struct docker_engine *d, const char *volume, const char *tool,
                                   int tar_fd, const struct deadline *by, struct err *err)
{
    _cleanup_close_ int fd = open(d->state_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct docker_source source = {.fd = fd};
    int r;

    if (fd < 0)
        return err_sys(err, errno, "create a file in '%s'", d->state_dir);
    r = docker_layers_rewrite(tar_fd, fd, tool, err);
    if (r < 0)
        return r;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(err, errno, "seek in the archive");
    return volume_fill(d, volume, &source, by, err);
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
    if (docker_layers_fill_base(d, name, tool, tar_fd, by, err) < 0 ||
        docker_layers_write_note(d, tool, name, path, err) < 0) {
        volume_remove(d, name, by, NULL);
        return err_wrap(err, "create a new base for the cache of '%s'", tool);
    }
    bases_sweep(d, tool, name, by);
    return 0;
}

/* ---- removing and listing ---- */

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
