/* Which files of a folder are sent to a build, and which are refused. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/build-context.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

struct bed {
    char dir[40];
    struct buf tar;
    char **names; /* "path", "path/" of a folder, "path -> target" of a link */
    struct err err;
    int r;
};

static void write_at(const struct bed *b, const char *path, const char *text)
{
    _cleanup_free_ char *full = xasprintf("%s/%s", b->dir, path);
    char *slash = strrchr(full, '/');

    *slash = '\0';
    if (dir_make_all(AT_FDCWD, full, 0755, NULL) < 0)
        abort();
    *slash = '/';
    if (file_replace(AT_FDCWD, full, text, strlen(text), 0644, false, NULL) < 0)
        abort();
}

static void bed_init(struct bed *b)
{
    *b = (struct bed){.dir = "/tmp/ripcord-context-XXXXXX", .tar = BUF_INIT(1 << 20)};
    if (!mkdtemp(b->dir))
        abort();
    write_at(b, "c/Dockerfile", "FROM scratch\n");
}

static void bed_done(struct bed *b)
{
    rmtree(AT_FDCWD, b->dir, NULL);
    buf_done(&b->tar);
    strv_free(b->names);
    err_done(&b->err);
}
#define _cleanup_bed_ __attribute__((cleanup(bed_done)))

static int write_buf(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len);
}

static ssize_t read_buf(void *arg, void *data, size_t len)
{
    struct buf *b = arg;
    size_t n = len < b->len ? len : b->len;

    memcpy(data, buf_data(b), n);
    buf_consume(b, n);
    return (ssize_t)n;
}

static void list_tar(struct bed *b)
{
    struct tar_entry *e = xnew0(struct tar_entry);
    struct tar_reader r;

    tar_reader_init(&r, read_buf, &b->tar);
    while (tar_next(&r, e, NULL) > 0)
        strv_push(&b->names, e->type == TAR_SYMLINK ? xasprintf("%s -> %s", e->path, e->link)
                             : e->type == TAR_DIR   ? xasprintf("%s/", e->path)
                                                    : xstrdup(e->path));
    free(e);
}

static void pack(struct bed *b, const char *file)
{
    _cleanup_free_ char *folder = xasprintf("%s/c", b->dir);
    _cleanup_free_ char *path = file ? xasprintf("%s/%s", b->dir, file) : NULL;
    _cleanup_(build_context_freep) struct build_context *c = NULL;

    b->r = build_context_open(folder, path, &c, &b->err);
    if (b->r >= 0)
        b->r = build_context_pack(c, write_buf, &b->tar, &b->err);
    if (b->r >= 0)
        list_tar(b);
}

#define CHECK_NAMES(b, want)                                                                       \
    do {                                                                                           \
        _cleanup_free_ char *all_ = (b)->names ? strv_join((b)->names, " ") : xstrdup("");         \
        CHECK_STR(all_, want);                                                                     \
    } while (0)

TEST(entries_are_sorted_and_the_dockerfile_is_first)
{
    _cleanup_bed_ struct bed b;

    bed_init(&b);
    write_at(&b, "c/z", "z");
    write_at(&b, "c/a/b", "b");
    write_at(&b, "c/.hidden", "");
    pack(&b, NULL);
    CHECK(b.r == 0);
    CHECK_NAMES(&b, "Dockerfile .hidden a/ a/b z");
}

TEST(links_are_sent_as_links)
{
    _cleanup_bed_ struct bed b;
    _cleanup_free_ char *out = NULL, *loop = NULL, *dir = NULL;

    bed_init(&b);
    out = xasprintf("%s/c/out", b.dir);
    loop = xasprintf("%s/c/loop", b.dir);
    dir = xasprintf("%s/c/etc", b.dir);
    CHECK(symlink("/etc/shadow", out) == 0 && symlink("loop", loop) == 0 &&
          symlink("/etc", dir) == 0);
    pack(&b, NULL);
    CHECK(b.r == 0);
    CHECK_NAMES(&b, "Dockerfile etc -> /etc loop -> loop out -> /etc/shadow");
}

TEST(ignored_files_are_excluded_except_exceptions)
{
    _cleanup_bed_ struct bed b;

    bed_init(&b);
    write_at(&b, "c/.dockerignore", "# a comment\nnode\n*.log\nDockerfile\n!node/keep\n");
    write_at(&b, "c/node/keep", "k");
    write_at(&b, "c/node/drop", "d");
    write_at(&b, "c/x.log", "l");
    write_at(&b, "c/x", "x");
    pack(&b, NULL);
    CHECK(b.r == 0);
    CHECK_NAMES(&b, "Dockerfile .dockerignore node/keep x");
}

TEST(a_dockerfiles_own_ignore_file_has_precedence)
{
    _cleanup_bed_ struct bed b;

    bed_init(&b);
    write_at(&b, "c/.dockerignore", "a\n");
    write_at(&b, "c/D.dockerignore", "b\n.dockerignore\nD.dockerignore\n");
    write_at(&b, "c/D", "FROM scratch\n");
    write_at(&b, "c/a", "a");
    write_at(&b, "c/b", "b");
    pack(&b, "c/D");
    CHECK(b.r == 0);
    CHECK_NAMES(&b, "D Dockerfile a");
}

TEST(a_dockerfile_outside_the_context_is_an_extra_entry)
{
    _cleanup_bed_ struct bed b;

    bed_init(&b);
    write_at(&b, "other/Dockerfile", "FROM scratch\n");
    pack(&b, "other/Dockerfile");
    CHECK(b.r == 0);
    CHECK_NAMES(&b, ".ripcord.Dockerfile Dockerfile");
}

TEST(a_dockerfile_in_a_folder_below_keeps_its_path)
{
    _cleanup_bed_ struct bed b;

    bed_init(&b);
    write_at(&b, "c/d/D", "FROM scratch\n");
    pack(&b, "c/d/../d/D");
    CHECK(b.r == 0);
    CHECK_NAMES(&b, "d/D Dockerfile d/");
}

static size_t digest_context_size(struct bed *b, const json_t *need)
{
    _cleanup_(build_context_freep) struct build_context *c = NULL;
    _cleanup_free_ char *folder = xasprintf("%s/c", b->dir);

    buf_clear(&b->tar);
    if (build_context_open(folder, NULL, &c, &b->err) < 0)
        return 0;
    build_context_digest_only(c, true, need);
    return build_context_pack(c, write_buf, &b->tar, &b->err) < 0 ? 0 : b->tar.len;
}

TEST(a_digest_only_context_has_small_and_needed_files)
{
    static const char digits[] = "a74d71e21fc289fc2802dc6b8c7c734082885be6cf3f67f8a1c8694fcc1b1831";
    _cleanup_json_ json_t *need = json_object();
    _cleanup_free_ char *big = xmalloc(100001);
    _cleanup_bed_ struct bed b;
    size_t n;

    bed_init(&b);
    memset(big, 'b', 100000);
    big[100000] = '\0';
    write_at(&b, "c/big", big);
    write_at(&b, "c/small", "the bytes of a small one");
    n = digest_context_size(&b, NULL);
    CHECK(n > 0 && n < 20000 && !memmem(buf_data(&b.tar), n, "bbbbbbbb", 8));
    CHECK(memmem(buf_data(&b.tar), n, digits, strlen(digits)));
    CHECK(memmem(buf_data(&b.tar), n, "the bytes of a small one", 24));
    json_object_set_new(need, digits, json_true());
    n = digest_context_size(&b, need);
    CHECK(n > 100000 && memmem(buf_data(&b.tar), n, big, 100000));
    CHECK(!memmem(buf_data(&b.tar), n, digits, strlen(digits)));
    list_tar(&b);
    CHECK(strv_len(b.names) == 3);
}

TEST(special_files_are_refused_by_name)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    _cleanup_bed_ struct bed b;
    _cleanup_free_ char *path = NULL;
    _cleanup_close_ int fd = -1;

    bed_init(&b);
    path = xasprintf("%s/c/pipe", b.dir);
    CHECK(mkfifo(path, 0600) == 0);
    pack(&b, NULL);
    CHECK(b.r == -ERR_INVALID && strstr(b.err.msg, "'pipe' in the context is a named pipe"));
    CHECK(strstr(b.err.hint, ".dockerignore"));
    CHECK(unlink(path) == 0);
    err_done(&b.err);
    buf_clear(&b.tar);
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/c/sock", b.dir);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    pack(&b, NULL);
    CHECK(b.r == -ERR_INVALID && strstr(b.err.msg, "is a socket"));
    err_done(&b.err);
    buf_clear(&b.tar);
    write_at(&b, "c/.dockerignore", "sock\n");
    pack(&b, NULL);
    CHECK(b.r == 0);
}

TEST(a_tree_that_does_not_end_is_refused)
{
    _cleanup_bed_ struct bed b;
    _cleanup_close_ int dir = -1;

    bed_init(&b);
    dir = open(b.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 300; i++) {
        int next;

        CHECK(mkdirat(dir, i ? "d" : "c/d", 0755) == 0);
        next = openat(dir, i ? "d" : "c/d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(dir);
        dir = next;
    }
    pack(&b, NULL);
    CHECK(b.r == -ERR_LIMIT && strstr(b.err.msg, "levels of folders"));
}

TEST(missing_files_are_reported)
{
    _cleanup_bed_ struct bed b;
    _cleanup_free_ char *path = NULL;
    struct build_context *c = NULL;

    bed_init(&b);
    pack(&b, "c/nosuch");
    CHECK(b.r == -ERR_NOT_FOUND && strstr(b.err.msg, "no such Dockerfile"));
    err_done(&b.err);
    path = xasprintf("%s/c/Dockerfile", b.dir);
    CHECK(build_context_open(path, NULL, &c, &b.err) == -ERR_INVALID);
    CHECK(strstr(b.err.msg, "not a folder"));
    err_done(&b.err);
    CHECK(build_context_open("/nosuch", NULL, &c, &b.err) == -ERR_NOT_FOUND);
    err_done(&b.err);
    write_at(&b, "c/.dockerignore", "[\n");
    pack(&b, NULL);
    CHECK(b.r == -ERR_INVALID && strstr(b.err.msg, ".dockerignore"));
}
