#include "image/oci/layout.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "image/oci/digest.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10, BLOB_PATH_MAX = 128 };

/* tar_write_fn */
static int layout_put_bytes(void *arg, const void *data, size_t len)
{
    const struct oci_layout *l = arg;

    return fd_write_all(l->out, data, len);
}

static int layout_put_head(struct oci_layout *l, const char *path, uint64_t size, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);

    snprintf(e->path, sizeof(e->path), "%s", path);
    e->mode = 0644;
    e->size = size;
    return tar_put(&l->w, e, err);
}

static void layout_blob_path(const char *digest, char ret[static BLOB_PATH_MAX])
{
    snprintf(ret, BLOB_PATH_MAX, "blobs/sha256/%s", digest_hex(digest));
}

int oci_layout_begin(struct oci_layout *l, int out, struct err *err)
{
    static const char version[] = "{\"imageLayoutVersion\":\"1.0.0\"}";

    l->out = out;
    tar_writer_init(&l->w, layout_put_bytes, l);
    return oci_layout_text(l, "oci-layout", version, strlen(version), err);
}

int oci_layout_text(struct oci_layout *l, const char *path, const char *text, size_t len,
                    struct err *err)
{
    int r = layout_put_head(l, path, len, err);

    if (r < 0)
        return r;
    return tar_write(&l->w, text, len, err);
}

int oci_layout_document(struct oci_layout *l, const char *text, size_t len, struct err *err)
{
    char digest[DIGEST_MAX], path[BLOB_PATH_MAX];

    digest_of(text, len, digest);
    layout_blob_path(digest, path);
    return oci_layout_text(l, path, text, len, err);
}

int oci_layout_blob(struct oci_layout *l, const char *digest, int fd, uint64_t size,
                    struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PIECE);
    char path[BLOB_PATH_MAX];
    int r;

    layout_blob_path(digest, path);
    r = layout_put_head(l, path, size, err);
    if (r < 0)
        return r;
    for (uint64_t at = 0; at < size;) {
        ssize_t n = pread(fd, buf, MIN((uint64_t)PIECE, size - at), (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : EIO, "read a layer");
        r = tar_write(&l->w, buf, (size_t)n, err);
        if (r < 0)
            return r;
        at += (uint64_t)n;
    }
    return 0;
}

int oci_layout_finish(struct oci_layout *l, struct err *err)
{
    return tar_finish(&l->w, err);
}
