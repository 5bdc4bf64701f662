/* Names, images and blobs of the store. Layers are in layers.c, lists and removal in collect.c. */
#include "image/store/images.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/oci/reference.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/ext4-spread.h"

enum { PREFIX_MIN = 6 };

/* ---- the folder ---- */

/* Fills *s as far as it gets. */
static int images_open_folder(const char *path, struct images *s, struct err *err)
{
    static const char *const folders[] = {"layers", "blobs", "images", "cache", "mounts", "tmp"};
    _cleanup_close_ int tmp = -1;
    int r;

    r = dir_make_all(AT_FDCWD, path, 0700, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, path, &s->dir, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (mkdirat(s->dir, folders[i], 0700) < 0 && errno != EEXIST)
            return err_sys(err, errno, "create folder '%s/%s'", path, folders[i]);
    r = dir_open(s->dir, "tmp", &tmp, err);
    if (r < 0)
        return r;
    /* The store creates and removes whole trees in tmp/, one after the other. */
    ext4_spread_children(tmp);
    return 0;
}

int images_open(const char *path, struct images *ret, struct err *err)
{
    struct images s = IMAGES_INIT;

    if (images_open_folder(path, &s, err) < 0) {
        images_done(&s);
        return err_wrap(err, "open the image store");
    }
    *ret = s;
    return 0;
}

void images_done(struct images *s)
{
    s->lock = fd_close(s->lock);
    s->dir = fd_close(s->dir);
}

static int images_lock_file(int dir, const char *name, int how, int *ret, struct err *err)
{
    _cleanup_close_ int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_sys(err, errno, "open '%s' of the image store", name);
    while (flock(fd, how) < 0) {
        if (errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return err_sys(err, errno, "lock '%s' of the image store", name);
    }
    *ret = TAKE_FD(fd);
    return 1;
}

int images_lock(struct images *s, bool exclusive, bool wait, struct err *err)
{
    int how = (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB);

    s->lock = fd_close(s->lock);
    return images_lock_file(s->dir, "lock", how, &s->lock, err);
}

/* ---- names ---- */

int images_refs(const struct images *s, json_t **ret, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    struct stat st;
    size_t len;
    int r;

    if (fstatat(s->dir, "refs", &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        *ret = json_object();
        return 0;
    }
    r = file_read(s->dir, "refs", IMAGES_REFS_MAX, &text, &len, err);
    if (r < 0)
        return r;
    return json_parse("image names", text, len, ret, err);
}

static int images_write_refs(struct images *s, const json_t *refs, struct err *err)
{
    _cleanup_free_ char *text = json_to_text(refs, true);
    _cleanup_close_ int fd = -1;
    int r;

    if (strlen(text) > IMAGES_REFS_MAX)
        return err_set(err, ERR_LIMIT, "too many image names");
    r = file_replace(s->dir, "refs", text, strlen(text), 0600, true, err);
    if (r < 0)
        return r;
    r = dir_open(s->dir, ".", &fd, err);
    if (r < 0)
        return r;
    return fsync(fd) < 0 ? err_sys(err, errno, "sync folder '.'") : 0;
}

/* Several processes can add images at once, with the store's lock shared. refs.lock guards the file
 * of names alone. id NULL: removes the name. 1: changed or already so; 0: no such name. */
static int images_change_ref(struct images *s, const char *name, const char *id, struct err *err)
{
    _cleanup_close_ int lock = -1;
    _cleanup_json_ json_t *refs = NULL;
    _cleanup_free_ char *ref = NULL;
    const json_t *now;
    int r;

    r = reference_parse(name, &ref, err);
    if (r < 0)
        return r;
    r = images_lock_file(s->dir, "refs.lock", LOCK_EX, &lock, err);
    if (r < 0)
        return r;
    r = images_refs(s, &refs, err);
    if (r < 0)
        return r;
    now = json_object_get(refs, ref);
    if (!id && !now)
        return 0;
    if (id && json_is_string(now) && STREQ(json_string_value(now), id))
        return 1;
    if (id)
        json_object_set_new(refs, ref, json_string(id));
    else
        json_object_del(refs, ref);
    r = images_write_refs(s, refs, err);
    return r < 0 ? r : 1;
}

int images_tag(struct images *s, const char *name, const char *id, struct err *err)
{
    return images_change_ref(s, name, id, err);
}

int images_untag(struct images *s, const char *name, struct err *err)
{
    return images_change_ref(s, name, NULL, err);
}

char *images_ref(const json_t *refs, const char *name)
{
    _cleanup_free_ char *ref = NULL, *local = NULL;

    if (reference_parse(name, &ref, NULL) < 0)
        return NULL;
    if (json_object_get(refs, ref))
        return TAKE_PTR(ref);
    local = xasprintf("localhost/%s", ref);
    return json_object_get(refs, local) ? TAKE_PTR(local) : NULL;
}

/* Returns the number of images whose id begins with `hex`; *ret is one of them. */
static int images_by_digits(const struct images *s, const char *hex, char ret[static DIGEST_MAX],
                            struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(s->dir, "images", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        fd_close(fd);
        return err_sys(err, errno, "read folder 'images' of the image store");
    }
    for (const struct dirent *e; (e = readdir(d));) {
        char digest[DIGEST_MAX];

        snprintf(digest, sizeof(digest), "sha256:%.64s", e->d_name);
        if (!digest_is_valid(digest) || strncmp(e->d_name, hex, strlen(hex)) != 0)
            continue;
        memcpy(ret, digest, sizeof(digest));
        n++;
    }
    return n;
}

static int images_resolve_digest(const struct images *s, const char *name,
                                 char ret[static DIGEST_MAX], struct err *err)
{
    const char *hex = strncmp(name, "sha256:", 7) == 0 ? name + 7 : name;
    size_t n = strspn(hex, "0123456789abcdef");
    int found;

    if (n < PREFIX_MIN || n > 64 || hex[n])
        return 0;
    found = images_by_digits(s, hex, ret, err);
    if (found > 1)
        return err_set(err, ERR_CONFLICT,
                       "'%s' is ambiguous: %d images have an id that begins with it", name, found);
    return found;
}

int images_resolve(const struct images *s, const char *name, char ret[static DIGEST_MAX],
                   struct err *err)
{
    _cleanup_free_ char *ref = NULL;
    _cleanup_json_ json_t *refs = NULL;
    const char *id;
    int r;

    r = images_refs(s, &refs, err);
    if (r < 0)
        return r;
    ref = images_ref(refs, name);
    id = ref ? json_string_value(json_object_get(refs, ref)) : NULL;
    if (id && digest_is_valid(id)) {
        memcpy(ret, id, DIGEST_MAX);
        return 0;
    }
    r = images_resolve_digest(s, name, ret, err);
    if (r != 0)
        return r < 0 ? r : 0;
    err_set(err, ERR_NOT_FOUND, "no such image: '%.200s'", name);
    return err_hint(err, "`ripcord image ls` lists the stored images; `ripcord image pull` and "
                         "`ripcord image import` add one.");
}

/* ---- images and blobs ---- */

int images_read(const struct images *s, const char *id, json_t **ret, struct err *err)
{
    _cleanup_free_ char *path = NULL, *text = NULL;
    struct stat st;
    size_t len;
    int r;

    if (!digest_is_valid(id))
        return err_set(err, ERR_INVALID, "'%.100s' is not an image digest", id);
    path = xasprintf("images/%s", digest_hex(id));
    if (fstatat(s->dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "image '%s' is no longer in the store", id);
    r = file_read(s->dir, path, IMAGES_RECORD_MAX, &text, &len, err);
    if (r < 0)
        return r;
    return json_parse("image record", text, len, ret, err);
}

/* A build whose steps are all cached writes nothing, so that it need not wait for the disk. */
static bool images_has_file(const struct images *s, const char *path, const void *data, size_t len)
{
    _cleanup_free_ char *found = NULL;
    size_t n;

    return file_read(s->dir, path, MAX(len, (size_t)1), &found, &n, NULL) >= 0 && n == len &&
           memcmp(found, data, len) == 0;
}

/* The file is written, but neither in its place nor safely on the disk. */
static int images_prepare_file(struct images *s, const char *tmp, const void *data, size_t len,
                               struct err *err)
{
    return file_replace(s->dir, tmp, data, len, 0600, false, err);
}

static int images_place_file(struct images *s, const char *tmp, const char *path, struct err *err)
{
    if (renameat(s->dir, tmp, s->dir, path) < 0)
        return err_sys(err, errno, "put '%s' into the image store", path);
    return 0;
}

static char *images_tmp_name(const char *folder, const char *digest)
{
    return xasprintf("tmp/%s-%s-%d", folder, digest_hex(digest), getpid());
}

/* All layers and blobs of the image are on the disk before the image gets its name. */
int images_put(struct images *s, const char *id, const json_t *record, struct err *err)
{
    _cleanup_free_ char *text = json_to_text(record, true), *tmp = images_tmp_name("images", id);
    _cleanup_free_ char *path = xasprintf("images/%s", digest_hex(id));
    const json_t *layers = json_object_get(record, "layers");
    size_t len = strlen(text);
    int r;

    if (len > IMAGES_RECORD_MAX)
        return err_set(err, ERR_LIMIT, "the configuration of image '%s' is too long", id);
    if (!images_are_fresh(s, layers) && images_has_file(s, path, text, len))
        return 0;
    r = images_prepare_file(s, tmp, text, len, err);
    if (r < 0)
        return r;
    r = images_settle(s, layers, err);
    if (r < 0)
        return r;
    r = images_place_file(s, tmp, path, err);
    if (r < 0)
        return r;
    if (syncfs(s->dir) < 0) /* also the removal of the layers' marks */
        return err_sys(err, errno, "sync the image store");
    return 0;
}

int images_put_blob(struct images *s, const char *digest, const void *data, size_t len,
                    struct err *err)
{
    _cleanup_free_ char *tmp = images_tmp_name("blobs", digest);
    _cleanup_free_ char *path = xasprintf("blobs/%s", digest_hex(digest));
    int r;

    if (images_has_file(s, path, data, len))
        return 0;
    r = images_prepare_file(s, tmp, data, len, err);
    if (r < 0)
        return r;
    return images_place_file(s, tmp, path, err);
}

int images_read_blob(const struct images *s, const char *digest, char **ret, size_t *ret_len,
                     struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", digest_hex(digest)), *text = NULL;
    char found[DIGEST_MAX];
    size_t len;
    int r = file_read(s->dir, path, IMAGES_CONFIG_MAX, &text, &len, err);

    if (r < 0)
        return r;
    digest_of(text, len, found);
    if (!STREQ(found, digest))
        return err_set(err, ERR_SYSTEM,
                       "'%s' in the image store is damaged (its content has digest '%s')", digest,
                       found);
    *ret = TAKE_PTR(text);
    *ret_len = len;
    return 0;
}
