#include "image/archive/layer-import.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10 };

/* ---- the children ---- */

struct layer_import_decompress_job {
    struct decompress_range in;
    int out;
    uint64_t max;
};

static int layer_import_run_decompress(void *arg, int root, void *out, struct err *err)
{
    const struct layer_import_decompress_job *j = arg;

    (void)root;
    (void)out;
    return decompress_stream(&j->in, j->out, j->max, err);
}

static int layer_import_start_decompress(const struct decompress_range *in, uint64_t max,
                                         struct confined *ret, int *ret_fd, struct err *err)
{
    /* It creates no files, so it needs no mapped ids. */
    const struct confined_ids own = {.kind = CONFINED_OWN};
    struct layer_import_decompress_job j = {.in = *in, .max = max};
    struct confined_job job = {
        .fn = layer_import_run_decompress, .arg = &j, .dir = -1, .fds = {in->fd}, .n_fds = 1};

    return confined_start_piped(&job, false, &j.out, &own, ret, ret_fd, err);
}

struct layer_import_unpack_job {
    int in;
    unsigned flags;
    uint64_t max;
};

static int layer_import_run_unpack(void *arg, int root, void *out, struct err *err)
{
    const struct layer_import_unpack_job *j = arg;

    _Static_assert(sizeof(struct unpack_stats) <= CONFINED_OUT_MAX, "the stats fit");
    return unpack_layer(j->in, root, j->flags, j->max, out, err);
}

static int layer_import_start_unpack(int dir, const struct confined_ids *ids, uint64_t max,
                                     struct confined *ret, int *ret_fd, struct err *err)
{
    struct layer_import_unpack_job j = {.flags = ids->kind != CONFINED_OWN ? UNPACK_OWNERS : 0,
                                        .max = max};
    struct confined_job job = {.fn = layer_import_run_unpack, .arg = &j, .dir = dir};

    return confined_start_piped(&job, true, &j.in, ids, ret, ret_fd, err);
}

/* ---- the parent, between the children ---- */

/* 1: the reader of `to` has closed it; its own error says why. */
static int layer_import_put(void *to, const void *data, size_t len, struct err *err)
{
    int r = fd_write_all(*(const int *)to, data, len);

    if (r == -EPIPE)
        return 1;
    return r < 0 ? err_sys(err, -r, "write to the image store") : 0;
}

int layer_import_decompress(const struct decompress_range *in, int out, uint64_t max,
                            char digest[static DIGEST_MAX], struct err *err)
{
    _cleanup_(confined_done) struct confined child = CONFINED_INIT;
    _cleanup_close_ int plain = -1;
    int r;

    r = layer_import_start_decompress(in, max, &child, &plain, err);
    if (r < 0)
        return r;
    r = confined_drain(plain, layer_import_put, &out, digest, err);
    if (r < 0)
        return r;
    return confined_wait(&child, NULL, 0, err);
}

/* ---- layers ---- */

static int layer_import_check_digest(const struct layer_import_in *in, struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PIECE);
    struct digest_state *d = digest_begin();
    char digest[DIGEST_MAX];
    uint64_t done = 0;

    while (done < in->range.size) {
        ssize_t n = pread(in->range.fd, buf, MIN((uint64_t)PIECE, in->range.size - done),
                          (off_t)(in->range.at + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        digest_add(d, buf, (size_t)n);
        done += (uint64_t)n;
    }
    digest_end(d, digest);
    if (!STREQ(digest, in->digest))
        return err_set(err, ERR_INVALID, "layer '%s' is damaged (its content has digest '%s')",
                       in->digest, digest);
    return 0;
}

int layer_import_unpack(int dir, const struct confined_ids *ids, const struct layer_import_in *in,
                        struct layer_import_out *ret, struct err *err)
{
    _cleanup_(confined_done) struct confined unpacker = CONFINED_INIT;
    _cleanup_(confined_done) struct confined decompressor = CONFINED_INIT;
    _cleanup_close_ int plain = -1, tar = -1;
    _cleanup_err_ struct err why = ERR_INIT;
    int drained, unpacked, r;

    r = layer_import_start_decompress(&in->range, UNPACK_BYTES_MAX, &decompressor, &plain, err);
    if (r < 0)
        return r;
    r = layer_import_start_unpack(dir, ids, in->max, &unpacker, &tar, err);
    if (r < 0)
        return r;
    drained = confined_drain(plain, layer_import_put, &tar, ret->diff_id, err);
    plain = fd_close(plain);
    tar = fd_close(tar);
    if (drained < 0)
        return drained;
    unpacked = confined_wait(&unpacker, &ret->stats, sizeof(ret->stats), &why);
    /* If both children fail, the error of the decompressor is the cause. With drained 1 the
     * unpacker has closed its pipe, so only its own error counts. */
    if (drained == 0) {
        r = confined_wait(&decompressor, NULL, 0, err);
        if (r < 0)
            return r;
    }
    return unpacked < 0 ? err_move(err, &why) : drained;
}

int layer_import_unpack_plain(int dir, int fd, unsigned flags, struct err *err)
{
    const struct confined_ids own = {.kind = CONFINED_OWN};
    struct layer_import_unpack_job j = {.in = fd, .flags = flags, .max = UNPACK_BYTES_MAX};
    const struct confined_job job = {
        .fn = layer_import_run_unpack, .arg = &j, .dir = dir, .fds = {fd}, .n_fds = 1};
    _cleanup_(confined_done) struct confined child = CONFINED_INIT;
    int r = confined_start(&job, &own, &child, err);

    if (r < 0)
        return r;
    return confined_wait(&child, NULL, 0, err);
}

static int layer_import_unpack_to(struct images *s, const struct confined_ids *ids,
                                  const char *name, const struct layer_import_in *in,
                                  struct layer_import_out *ret, struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("tmp/%s", name), *fs = xasprintf("%s/fs", tmp);
    _cleanup_close_ int dir = -1;
    int r;

    if (mkdirat(s->dir, tmp, 0700) < 0 || mkdirat(s->dir, fs, 0755) < 0)
        return err_sys(err, errno, "create folder '%s' of the image store", fs);
    r = dir_open(s->dir, fs, &dir, err);
    if (r < 0)
        return r;
    r = layer_import_unpack(dir, ids, in, ret, err);
    if (r < 0)
        return r;
    if (in->diff_id && !STREQ(in->diff_id, ret->diff_id))
        return err_set(err, ERR_INVALID,
                       "layer '%s' is damaged (its uncompressed content has digest '%s')",
                       in->diff_id, ret->diff_id);
    return images_put_layer(s, ret->diff_id, name, ret->stats.bytes, err);
}

int layer_import(struct images *s, const struct confined_ids *ids, const struct layer_import_in *in,
                 struct layer_import_out *ret, struct err *err)
{
    static unsigned number;
    _cleanup_free_ char *name = xasprintf("layer-%d-%u", getpid(), number++);
    _cleanup_free_ char *tmp = xasprintf("tmp/%s", name);
    struct layer_import_out out = {0};
    int r;

    if (in->diff_id && images_has_layer(s, in->diff_id)) {
        memcpy(ret->diff_id, in->diff_id, DIGEST_MAX);
        ret->stats = (struct unpack_stats){.bytes = images_layer_bytes(s, in->diff_id)};
        return 0;
    }
    if (in->digest) {
        r = layer_import_check_digest(in, err);
        if (r < 0)
            return r;
    }
    r = layer_import_unpack_to(s, ids, name, in, &out, err);
    confined_remove(ids, s->dir, tmp, NULL); /* after a success it is usually gone */
    if (r < 0)
        return r;
    *ret = out;
    return 1;
}
