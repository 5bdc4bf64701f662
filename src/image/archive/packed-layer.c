#include "image/archive/packed-layer.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "image/archive/pack.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

/* Receives the bytes of the child. */
struct packed_layer_sink {
    int fd;
    uint64_t size;
    struct digest_state *digest; /* owned: of the written bytes */
    struct archive *gzip;        /* owned; NULL: not compressed */
};

/* ---- the child ---- */

static int packed_layer_run_pack(void *arg, int root, void *out, struct err *err)
{
    _Static_assert(sizeof(struct pack_stats) <= CONFINED_OUT_MAX, "the stats fit");
    return pack_layer(root, *(const int *)arg, out, err);
}

/* ---- the file ---- */

static int packed_layer_sink_write(struct packed_layer_sink *s, const void *data, size_t len)
{
    int r = fd_write_all(s->fd, data, len);

    if (r < 0)
        return r;
    digest_add(s->digest, data, len);
    s->size += len;
    return 0;
}

static la_ssize_t packed_layer_on_gzip(struct archive *a, void *arg, const void *data, size_t len)
{
    int r = packed_layer_sink_write(arg, data, len);

    if (r == 0)
        return (la_ssize_t)len;
    archive_set_error(a, -r, "%s", strerror(-r));
    return -1;
}

static int packed_layer_gzip_fault(struct packed_layer_sink *s, struct err *err)
{
    return err_sys(err, archive_errno(s->gzip), "compress a layer");
}

/* No time stamp in the header, so that the same layer gives the same bytes. */
static int packed_layer_gzip_begin(struct packed_layer_sink *s, struct err *err)
{
    struct archive_entry *e = archive_entry_new();
    int r;

    s->gzip = archive_write_new();
    archive_entry_set_pathname(e, "layer");
    archive_entry_set_filetype(e, AE_IFREG);
    r = archive_write_add_filter_gzip(s->gzip);
    if (r == ARCHIVE_OK)
        r = archive_write_set_options(s->gzip, "gzip:!timestamp");
    if (r == ARCHIVE_OK)
        r = archive_write_set_format_raw(s->gzip);
    if (r == ARCHIVE_OK)
        r = archive_write_set_bytes_in_last_block(s->gzip, 1);
    if (r == ARCHIVE_OK)
        r = archive_write_open(s->gzip, s, NULL, packed_layer_on_gzip, NULL);
    if (r == ARCHIVE_OK)
        r = archive_write_header(s->gzip, e);
    archive_entry_free(e);
    return r == ARCHIVE_OK ? 0 : packed_layer_gzip_fault(s, err);
}

static int packed_layer_sink_put(void *to, const void *data, size_t len, struct err *err)
{
    struct packed_layer_sink *s = to;
    int r;

    if (s->gzip)
        return archive_write_data(s->gzip, data, len) < 0 ? packed_layer_gzip_fault(s, err) : 0;
    r = packed_layer_sink_write(s, data, len);
    return r < 0 ? err_sys(err, -r, "write to the image store") : 0;
}

static void packed_layer_sink_done(struct packed_layer_sink *s)
{
    archive_write_free(s->gzip);
    digest_end(s->digest, NULL);
}

static int packed_layer_fill(int dir, const struct confined_ids *ids, bool gzip,
                             struct packed_layer *p, struct err *err)
{
    _cleanup_(packed_layer_sink_done) struct packed_layer_sink sink = {.fd = p->fd,
                                                                       .digest = digest_begin()};
    _cleanup_(confined_done) struct confined child = CONFINED_INIT;
    _cleanup_close_ int plain = -1;
    int out, r;
    struct confined_job job = {.fn = packed_layer_run_pack, .arg = &out, .dir = dir};

    if (gzip) {
        r = packed_layer_gzip_begin(&sink, err);
        if (r < 0)
            return r;
    }
    r = confined_start_piped(&job, false, &out, ids, &child, &plain, err);
    if (r < 0)
        return r;
    r = confined_drain(plain, packed_layer_sink_put, &sink, p->diff_id, err);
    if (r < 0)
        return r;
    if (gzip && archive_write_close(sink.gzip) != ARCHIVE_OK)
        return packed_layer_gzip_fault(&sink, err);
    plain = fd_close(plain); /* a child that still writes gets EPIPE */
    r = confined_wait(&child, NULL, 0, err);
    if (r < 0)
        return r;
    digest_end(TAKE_PTR(sink.digest), p->digest);
    p->size = sink.size;
    return 0;
}

static int packed_layer_open_and_fill(const struct images *s, const struct confined_ids *ids,
                                      const char *layer, bool gzip, struct packed_layer *p,
                                      struct err *err)
{
    _cleanup_free_ char *path = xasprintf("layers/%s/fs", digest_hex(layer));
    _cleanup_close_ int dir = -1;
    int r = dir_open(s->dir, path, &dir, err);

    if (r < 0)
        return r;
    p->fd = openat(s->dir, "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (p->fd < 0)
        return err_sys(err, errno, "create a file in the image store");
    return packed_layer_fill(dir, ids, gzip, p, err);
}

int packed_layer_make(const struct images *s, const struct confined_ids *ids, const char *layer,
                      bool gzip, struct packed_layer *ret, struct err *err)
{
    struct packed_layer p = PACKED_LAYER_INIT;

    if (packed_layer_open_and_fill(s, ids, layer, gzip, &p, err) < 0) {
        packed_layer_done(&p);
        return err_wrap(err, "layer '%s'", layer);
    }
    *ret = p;
    return 0;
}

void packed_layer_done(struct packed_layer *p)
{
    p->fd = fd_close(p->fd);
}
