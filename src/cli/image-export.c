/*
 * ripcord image export: writes an image of the store as an archive or a folder. A file gets its
 * name when it is complete, so that an interrupted export leaves no file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/image.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

enum { PIECE = 256 << 10 };

struct export_job {
    struct client *client;
    const char *path; /* NULL: standard output */
    bool folder;
    struct progress progress;
    uint64_t bytes;
    struct err failure;
};

/* tar_read_fn */
static ssize_t image_export_read_piece(void *arg, void *data, size_t len)
{
    struct export_job *x = arg;
    ssize_t n = client_read(x->client, data, len, &x->failure);

    if (n < 0)
        return -EIO;
    x->bytes += (uint64_t)n;
    progress_add(&x->progress, (uint64_t)n);
    return n;
}

/* The daemon cuts the stream when the export fails on its side after the start of the response. */
static int image_export_cut_off(struct export_job *x, struct err *err)
{
    err_done(err);
    err_move(err, &x->failure);
    return err_wrap(err, "the export ended early");
}

static int image_export_copy_to(struct export_job *x, int fd, struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    ssize_t n;
    int r;

    while ((n = image_export_read_piece(x, piece, PIECE)) > 0) {
        r = fd_write_all(fd, piece, (size_t)n);
        if (r < 0)
            return tree_err(err, -r, "write '%s'", x->path ? x->path : "standard output");
    }
    return n < 0 ? image_export_cut_off(x, err) : 0;
}

/* ---- a file ---- */

static char *image_export_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return xstrdup(".");
    return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

/* Links a temporary name and renames it: linkat(2) cannot replace an existing file. */
static int image_export_link_name(int fd, const char *path, struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("%s.%d", path, getpid());
    char self[64];

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW) < 0)
        return tree_err(err, errno, "make '%s'", tmp);
    if (rename(tmp, path) < 0) {
        int saved = errno;

        unlink(tmp);
        return tree_err(err, saved, "make '%s'", path);
    }
    return 0;
}

static int image_export_to_file(struct export_job *x, struct err *err)
{
    _cleanup_free_ char *folder = image_export_folder_of(x->path);
    _cleanup_close_ int fd = -1;
    struct stat st;
    bool named = stat(x->path, &st) == 0 && !S_ISREG(st.st_mode); /* a pipe, a device */
    int r;

    if (!named)
        fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0 && (named || errno == EOPNOTSUPP || errno == EISDIR)) {
        named = true;
        fd = open(x->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    }
    if (fd < 0)
        return tree_err(err, errno, "write '%s'", x->path);
    r = image_export_copy_to(x, fd, err);
    return r < 0 || named ? r : image_export_link_name(fd, x->path, err);
}

/* ---- a folder ---- */

static bool image_export_blob_is_valid(const char *path)
{
    static const char blobs[] = "blobs/sha256/";
    const char *hex = path + strlen(blobs);

    return strncmp(path, blobs, strlen(blobs)) == 0 && strlen(hex) == 64 &&
           strspn(hex, "0123456789abcdef") == 64;
}

/* The daemon is trusted, but names from outside are checked anyway. */
static int image_export_put_file(struct export_job *x, int dir, struct tar_reader *t,
                                 const struct tar_entry *e, struct err *err)
{
    _cleanup_free_ char *piece = xmalloc(PIECE);
    _cleanup_close_ int fd = -1;
    ssize_t n;
    int r;

    if (e->type != TAR_FILE || !(STREQ(e->path, "oci-layout") || STREQ(e->path, "index.json") ||
                                 image_export_blob_is_valid(e->path)))
        return err_set(err, ERR_INVALID, "'%.200s' is not part of an OCI layout", e->path);
    fd = openat(dir, e->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return tree_err(err, errno, "make '%s/%s'", x->path, e->path);
    while ((n = tar_read(t, piece, PIECE, err)) > 0) {
        r = fd_write_all(fd, piece, (size_t)n);
        if (r < 0)
            return tree_err(err, -r, "write '%s/%s'", x->path, e->path);
    }
    return (int)n;
}

/* Creates the folder if it is missing. Refuses a folder with files, which would mix with the
 * export. */
static int image_export_open_folder(const char *path, int *ret, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    const struct dirent *e;

    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return tree_err(err, errno, "make folder '%s'", path);
    d = opendir(path);
    if (!d)
        return tree_err(err, errno, "open folder '%s'", path);
    while ((e = readdir(d)))
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            return err_set(err, ERR_CONFLICT, "folder '%s' is not empty", path);
    if (mkdirat(dirfd(d), "blobs", 0777) < 0 || mkdirat(dirfd(d), "blobs/sha256", 0777) < 0)
        return tree_err(err, errno, "make '%s/blobs/sha256'", path);
    return dir_open(AT_FDCWD, path, ret, err);
}

static int image_export_to_folder(struct export_job *x, struct err *err)
{
    _cleanup_free_ struct tar_entry *e = xnew0(struct tar_entry);
    _cleanup_close_ int dir = -1;
    struct tar_reader t;
    char rest[TAR_BLOCK];
    int r = image_export_open_folder(x->path, &dir, err);

    if (r < 0)
        return r;
    tar_reader_init(&t, image_export_read_piece, x);
    while ((r = tar_next(&t, e, err)) > 0) {
        r = image_export_put_file(x, dir, &t, e, err);
        if (r < 0)
            break;
    }
    while (r == 0 && !x->failure.code && image_export_read_piece(x, rest, sizeof(rest)) > 0)
        ;
    return x->failure.code ? image_export_cut_off(x, err) : r;
}

/* ---- the command ---- */

static int image_export_check_place(const struct cli *cli, struct export_job *x, bool docker,
                                    struct err *err)
{
    struct stat st;
    size_t len = x->path ? strlen(x->path) : 0;

    if (!x->path && isatty(STDOUT_FILENO)) {
        err_set(err, ERR_INVALID,
                "standard output is a terminal; refusing to write an image to it");
        return err_hint(err, "Give a file or a folder, for example -o image.tar.");
    }
    if (!x->path && cli->json)
        return err_set(err, ERR_INVALID,
                       "--json cannot be combined with an archive on standard output");
    x->folder =
        len && (x->path[len - 1] == '/' || (stat(x->path, &st) == 0 && S_ISDIR(st.st_mode)));
    if (x->folder && docker)
        return err_set(err, ERR_INVALID, "--format docker writes an archive, but '%s' is a folder",
                       x->path);
    return 0;
}

static int image_export_download(struct export_job *x, const char *name, const char *format,
                                 struct err *err)
{
    _cleanup_free_ char *escaped = client_escape(name), *form = client_escape(format);
    _cleanup_free_ char *target = xasprintf("/v1/images/export?name=%s&format=%s", escaped, form);
    int r = client_ask(x->client, "GET", target, NULL, err);

    if (r < 0)
        return r;
    if (x->folder)
        return image_export_to_folder(x, err);
    return x->path ? image_export_to_file(x, err) : image_export_copy_to(x, STDOUT_FILENO, err);
}

int image_export(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *format = args_get(args, "format"), *path = args_get(args, "output");
    struct export_job x = {.path = path && !STREQ(path, "-") ? path : NULL};
    _cleanup_json_ json_t *doc = NULL;
    int r;

    if (args->n_words != 2)
        return err_set(err, ERR_INVALID, "usage: ripcord image export NAME [-o FILE|DIR]");
    format = format ? format : "oci";
    if (!STREQ(format, "oci") && !STREQ(format, "docker"))
        return err_set(err, ERR_INVALID, "--format: unknown format '%.40s'; supported: oci, docker",
                       format);
    r = image_export_check_place(cli, &x, STREQ(format, "docker"), err);
    if (r < 0)
        return r;
    r = cli_client(cli, &x.client, err);
    if (r < 0)
        return r;
    progress_init(&x.progress, cli->json);
    r = image_export_download(&x, args->words[1], format, err);
    progress_done(&x.progress);
    err_done(&x.failure);
    if (r < 0)
        return err_wrap(err, "export '%s'", args->words[1]);
    if (!cli->json)
        return 0;
    doc = json_pack("{s:s, s:s, s:I}", "name", args->words[1], "path", x.path, "bytes",
                    (json_int_t)x.bytes);
    output_json(doc);
    return 0;
}
