/* The image store and the documents of images. test/integration/test_images.py tests the unpacking
 * of archives, in its confined child. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "image/archive/layer-copy.h"
#include "image/archive/pack.h"
#include "image/archive/unpack.h"
#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "image/store/images.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "lib/os/whiteout.h"
#include "tap.h"

#define A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
#define D "sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"

static struct err err;
static char folder[] = "/tmp/test-image-XXXXXX";
static struct images store = IMAGES_INIT;

/* Discards the message of an error, so that a test can compare the code alone. */
static int forget(int r)
{
    err_done(&err);
    err = (struct err)ERR_INIT;
    return r;
}

static void fresh(void)
{
    forget(0);
    images_done(&store);
    rmtree(AT_FDCWD, folder, NULL);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    if (!mkdtemp(folder) || images_open(folder, &store, &err) < 0)
        abort();
}

static int remove_tree(void *arg, int dirfd, const char *name, struct err *e)
{
    (void)arg;
    return rmtree(dirfd, name, e);
}

static void add_layer(const char *digest, uint64_t bytes)
{
    if (mkdirat(store.dir, "tmp/x", 0700) < 0 || mkdirat(store.dir, "tmp/x/fs", 0755) < 0 ||
        images_put_layer(&store, digest, "x", bytes, &err) < 0)
        abort();
}

static void add_image(const char *id, const char *layer1, const char *layer2)
{
    _cleanup_json_ json_t *r = json_pack("{s:[s, s], s:n}", "layers", layer1, layer2, "manifest");

    if (images_put(&store, id, r, &err) < 0 || images_put_blob(&store, id, "{}", 2, &err) < 0)
        abort();
}

/* ---- names ---- */

static bool is_name(const char *in, const char *out)
{
    _cleanup_free_ char *ref = NULL;

    return out ? reference_parse(in, &ref, NULL) >= 0 && STREQ(ref, out)
               : reference_parse(in, &ref, NULL) < 0 && !ref;
}

TEST(names_have_a_normal_form)
{
    CHECK(is_name("debian", "debian:latest"));
    CHECK(is_name("debian:12", "debian:12"));
    CHECK(is_name("docker.io/library/debian:12", "debian:12"));
    CHECK(is_name("docker.io/team/tool", "team/tool:latest"));
    CHECK(is_name("host.example:5000/a/b:v1", "host.example:5000/a/b:v1"));
    CHECK(is_name("localhost/x", "localhost/x:latest"));
}

TEST(invalid_names_are_refused)
{
    static const char *const bad[] = {"",     "/",        "a//b", "../a", "a/../b", "A",
                                      "a:",   "a:b:c",    "a b",  "-a",   "a-",     "a:/b",
                                      "host", "a@sha256", "a/.b", ".a",   "x:y/z",  "host:latest"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(is_name(bad[i], NULL));
}

TEST(digests_are_complete_and_lower_case)
{
    char d[DIGEST_MAX];

    digest_of("", 0, d);
    CHECK(STREQ(d, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    CHECK(digest_is_valid(d));
    d[20] = 'A';
    CHECK(!digest_is_valid(d));
    CHECK(!digest_is_valid("sha256:12") && !digest_is_valid(NULL) && !digest_is_valid("md5:x"));
    CHECK(
        !digest_is_valid("sha256:../../../../../../../../../../../../../../../../../../../../..x"));
}

TEST(entry_paths_stay_below_the_layer)
{
    char out[UNPACK_PATH_MAX];

    CHECK(unpack_name("./a//b/./c/", out, NULL) >= 0 && STREQ(out, "a/b/c"));
    CHECK(unpack_name(".", out, NULL) >= 0 && STREQ(out, ""));
    CHECK(unpack_name("..a/b..", out, NULL) >= 0 && STREQ(out, "..a/b.."));
    CHECK(unpack_name("a/../b", out, NULL) == -ERR_DENIED);
    CHECK(unpack_name("..", out, NULL) == -ERR_DENIED);
    CHECK(unpack_name("/etc", out, NULL) == -ERR_DENIED);
}

TEST(long_and_deep_paths_are_refused)
{
    char out[UNPACK_PATH_MAX], name[2 * UNPACK_PATH_MAX];

    memset(name, 'x', sizeof(name));
    name[256] = '\0';
    CHECK(unpack_name(name, out, NULL) == -ERR_INVALID);
    for (size_t i = 0; i + 2 < sizeof(name); i += 2)
        memcpy(name + i, "a/", 3);
    CHECK(unpack_name(name, out, NULL) == -ERR_INVALID);
    name[2 * UNPACK_DEPTH_MAX] = '\0';
    CHECK(unpack_name(name, out, NULL) >= 0);
}

/* A layer folder with one entry of each kind. */
static int make_tree(const char *path)
{
    int dir = -1, fd;

    if (mkdirat(store.dir, path, 0755) < 0 || dir_open(store.dir, path, &dir, &err) < 0 ||
        mkdirat(dir, "d", 0750) < 0 || symlinkat("d/f", dir, "l") < 0 ||
        whiteout_make(dir, "gone", &err) < 0 || mkfifoat(dir, "pipe", 0600) < 0)
        abort();
    fd = openat(dir, "d/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (fd_write_all(fd, "hello", 5) < 0 || linkat(dir, "d/f", dir, "d/g", 0) < 0)
        abort();
    close(fd);
    return dir;
}

static int pack_to(int dir, const char *path, struct pack_stats *stats)
{
    int fd = openat(store.dir, path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (pack_layer(dir, fd, stats, &err) < 0 || lseek(fd, 0, SEEK_SET) != 0)
        abort();
    return fd;
}

TEST(packing_and_unpacking_keeps_a_layer)
{
    _cleanup_free_ char *one = NULL, *two = NULL;
    _cleanup_close_ int from = -1, back = -1, tar1 = -1, tar2 = -1;
    struct pack_stats stats;
    struct unpack_stats in;
    size_t len1, len2;

    fresh();
    from = make_tree("tmp/from");
    tar1 = pack_to(from, "tmp/1", &stats);
    CHECK(stats.entries == 5 && stats.dropped == 1);
    CHECK(mkdirat(store.dir, "tmp/back", 0755) == 0);
    CHECK(dir_open(store.dir, "tmp/back", &back, &err) >= 0);
    CHECK(unpack_layer(tar1, back, 0, UNPACK_BYTES_MAX, &in, &err) >= 0);
    CHECK(in.entries == 5 && in.bytes == 5 && in.dropped == 0);
    tar2 = pack_to(back, "tmp/2", &stats);
    CHECK(file_read(store.dir, "tmp/1", MIB(1), &one, &len1, &err) >= 0);
    CHECK(file_read(store.dir, "tmp/2", MIB(1), &two, &len2, &err) >= 0);
    CHECK(len1 == len2 && memcmp(one, two, len1) == 0);
}

TEST(a_file_named_like_a_whiteout_is_not_packed)
{
    _cleanup_close_ int dir = -1, out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    struct pack_stats stats;

    fresh();
    dir = make_tree("tmp/from");
    CHECK(mkdirat(dir, "d/.wh.x", 0755) == 0);
    CHECK(forget(pack_layer(dir, out, &stats, &err)) == -ERR_UNSUPPORTED);
}

TEST(whiteouts_are_distinguished)
{
    const char *hidden = NULL;

    CHECK(whiteout_parse("wh.x", &hidden) == WHITEOUT_NONE);
    CHECK(whiteout_parse(".wh.x", &hidden) == WHITEOUT_HIDES && STREQ(hidden, "x"));
    CHECK(whiteout_parse(".wh..wh..opq", &hidden) == WHITEOUT_OPAQUE);
    CHECK(whiteout_parse(".wh..wh.plnk", &hidden) == WHITEOUT_OTHER);
    CHECK(whiteout_parse(".wh.", &hidden) == WHITEOUT_BAD);
    CHECK(whiteout_parse(".wh..", &hidden) == WHITEOUT_BAD);
    CHECK(whiteout_parse(".wh...", &hidden) == WHITEOUT_BAD);
}

/* ---- documents ---- */

#define PARSE(fn, text, ret) forget(fn(text, strlen(text), ret, &err))

TEST(saved_images_are_read)
{
    struct saved_images s = {0};

    CHECK(PARSE(saved_images_parse,
                "[{\"Config\":\"c.json\",\"RepoTags\":[\"a:1\"],\"Layers\":[\"l/layer.tar\"],"
                "\"Parent\":\"x\"}]",
                &s) >= 0);
    CHECK(s.n == 1 && STREQ(s.v[0].config, "c.json") && STREQ(s.v[0].tags[0], "a:1"));
    CHECK(strv_len(s.v[0].layers) == 1);
    saved_images_done(&s);
    CHECK(PARSE(saved_images_parse, "[{\"Config\":\"c\",\"RepoTags\":null,\"Layers\":[]}]", &s) >=
          0);
    saved_images_done(&s);
    CHECK(PARSE(saved_images_parse, "[]", &s) < 0);
    CHECK(PARSE(saved_images_parse, "{}", &s) < 0);
    CHECK(PARSE(saved_images_parse, "[{\"Layers\":[]}]", &s) < 0);
    CHECK(PARSE(saved_images_parse, "[{\"Config\":\"c\",\"Layers\":[1]}]", &s) < 0);
}

TEST(an_index_is_filtered_by_platform)
{
    struct oci_index x = {0};

    CHECK(PARSE(oci_index_parse,
                "{\"manifests\":[{\"digest\":\"" A "\",\"size\":2,\"platform\":{\"os\":\"plan9\"}},"
                "{\"digest\":\"" B "\",\"size\":3,\"annotations\":"
                "{\"org.opencontainers.image.ref.name\":\"v1\"}}]}",
                &x) >= 0);
    CHECK(x.n == 1 && STREQ(x.v[0].d.digest, B) && x.v[0].d.size == 3 && STREQ(x.v[0].name, "v1"));
    oci_index_done(&x);
    CHECK(PARSE(oci_index_parse, "{\"manifests\":[{\"digest\":\"sha256:../x\",\"size\":2}]}", &x) <
          0);
    CHECK(PARSE(oci_index_parse, "{\"manifests\":[{\"digest\":\"" A "\",\"size\":-2}]}", &x) < 0);
    CHECK(PARSE(oci_index_parse, "{}", &x) < 0);
}

TEST(a_manifest_has_checked_digests)
{
    struct oci_manifest m = {0};

    CHECK(PARSE(oci_manifest_parse,
                "{\"config\":{\"digest\":\"" A "\",\"size\":1},\"layers\":[{\"digest\":\"" B
                "\",\"size\":9}]}",
                &m) >= 0);
    CHECK(m.n == 1 && STREQ(m.config.digest, A) && m.layers[0].size == 9);
    oci_manifest_done(&m);
    CHECK(PARSE(oci_manifest_parse, "{\"config\":{},\"layers\":[]}", &m) < 0);
    CHECK(PARSE(oci_manifest_parse, "{\"config\":{\"digest\":\"" A "\",\"size\":1}}", &m) < 0);
}

TEST(a_configuration_becomes_a_record)
{
    _cleanup_json_ json_t *r = NULL;
    _cleanup_free_ char *made = image_config_make(A);

    CHECK(PARSE(image_config_parse,
                "{\"config\":{\"Env\":[\"A=1\"],\"User\":\"\",\"WorkingDir\":\"/app\"},"
                "\"rootfs\":{\"diff_ids\":[\"" A "\"]},\"x\":1}",
                &r) >= 0);
    CHECK(json_is_null(json_object_get(r, "user")));
    CHECK(STREQ(json_string_value(json_object_get(r, "workdir")), "/app"));
    json_decref(TAKE_PTR(r));
    CHECK(PARSE(image_config_parse, made, &r) >= 0);
    CHECK(json_array_size(json_object_get(r, "layers")) == 1);
    CHECK(PARSE(image_config_parse, "{\"os\":\"windows\"}", &r) == -ERR_UNSUPPORTED);
    CHECK(PARSE(image_config_parse, "{\"rootfs\":{\"diff_ids\":[\"../x\"]}}", &r) < 0);
    CHECK(PARSE(image_config_parse, "{\"config\":{\"Env\":\"A\"}}", &r) < 0);
    CHECK(PARSE(image_config_parse, "[]", &r) < 0);
    CHECK(PARSE(image_config_parse, "{\"ripcord.base\":\"host-2\"}", &r) == -ERR_UNSUPPORTED);
    CHECK(PARSE(image_config_parse, "{\"ripcord.base\":1}", &r) < 0);
}

TEST(the_host_layer_is_outside_the_store)
{
    static const char *const bad[] = {"", "g-", "g-0123456789abcdeF", "g-0123456789abcdef0",
                                      "../x"};
    _cleanup_free_ char *host = NULL, *other = NULL;

    fresh();
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        CHECK(forget(images_set_host(&store, bad[i], &err)) == -ERR_INVALID);
    CHECK(images_set_host(&store, "g-0123456789abcdef", &err) >= 0);
    host = images_layer_path(&store, IMAGES_HOST_LAYER);
    other = images_layer_path(&store, A);
    CHECK(STREQ(host, "../host/g-0123456789abcdef"));
    CHECK(strncmp(other, "layers/aaaa", 11) == 0);
}

/* ---- the store ---- */

TEST(a_name_resolves_to_its_image)
{
    char id[DIGEST_MAX];

    fresh();
    add_layer(C, 10);
    add_image(A, C, C);
    CHECK(images_tag(&store, "tool:1", A, &err) >= 0);
    CHECK(images_resolve(&store, "docker.io/library/tool:1", id, &err) >= 0 && STREQ(id, A));
    CHECK(images_resolve(&store, A, id, &err) >= 0 && STREQ(id, A));
    CHECK(images_resolve(&store, "aaaaaa", id, &err) >= 0 && STREQ(id, A));
    CHECK(forget(images_resolve(&store, "tool", id, &err)) == -ERR_NOT_FOUND);
    CHECK(forget(images_resolve(&store, "aaaaa", id, &err)) == -ERR_NOT_FOUND);
    CHECK(images_untag(&store, "tool:1", &err) == 1 && images_untag(&store, "tool:1", &err) == 0);
    CHECK(forget(images_resolve(&store, "tool:1", id, &err)) == -ERR_NOT_FOUND);
}

TEST(shared_layers_count_once)
{
    _cleanup_json_ json_t *list = NULL;
    const json_t *image;
    size_t i;

    fresh();
    add_layer(B, 7);
    add_layer(C, 100);
    add_layer(D, 1000);
    add_image(A, C, B);
    add_image(B, C, D);
    CHECK(images_list(&store, &list, &err) >= 0);
    CHECK(json_integer_value(json_object_get(list, "bytes")) == 1107);
    json_array_foreach (json_object_get(list, "images"), i, image) {
        bool a = STREQ(json_string_value(json_object_get(image, "id")), A);

        CHECK(json_integer_value(json_object_get(image, "bytes")) == (a ? 107 : 1100));
        CHECK(json_integer_value(json_object_get(image, "own_bytes")) == (a ? 7 : 1000));
    }
    CHECK(i == 2);
}

static int history_of(const char *lines, json_t **ret)
{
    _cleanup_free_ char *config = xasprintf("{\"history\":%s}", lines);
    _cleanup_json_ json_t *image = NULL;
    char id[DIGEST_MAX];

    digest_of(config, strlen(config), id);
    if (images_put_blob(&store, id, config, strlen(config), &err) < 0)
        abort();
    image = json_pack("{s:s, s:[s, s]}", "id", id, "layers", C, D);
    return images_history(&store, image, ret, &err);
}

static json_int_t bytes_at(const json_t *list, size_t i)
{
    const json_t *bytes = json_object_get(json_array_get(list, i), "bytes");

    return json_is_null(bytes) ? -1 : json_integer_value(bytes);
}

TEST(history_lines_name_their_layers)
{
    _cleanup_json_ json_t *known = NULL, *unknown = NULL, *none = NULL, *odd = NULL;

    fresh();
    add_layer(C, 10);
    add_layer(D, 20);
    CHECK(history_of("[{\"created_by\":\"a\"},{\"created_by\":\"b\",\"empty_layer\":true},{}]",
                     &known) >= 0);
    CHECK(json_array_size(known) == 3);
    CHECK(bytes_at(known, 0) == 10 && bytes_at(known, 1) == 0 && bytes_at(known, 2) == 20);
    CHECK_STR(json_string_value(json_object_get(json_array_get(known, 2), "layer")), D);
    CHECK(json_is_null(json_object_get(json_array_get(known, 1), "layer")));
    CHECK_STR(json_string_value(json_object_get(json_array_get(known, 1), "created_by")), "b");
    CHECK(history_of("[{},{\"empty_layer\":true}]", &unknown) >= 0);
    CHECK(bytes_at(unknown, 0) == -1 && bytes_at(unknown, 1) == 0);
    CHECK(history_of("null", &none) >= 0 && json_array_size(none) == 0);
    CHECK(history_of("[1,\"x\",{\"created_by\":[]}]", &odd) >= 0 && json_array_size(odd) == 3);
}

TEST(long_histories_are_cut)
{
    _cleanup_buf_ struct buf b = BUF_INIT(1 << 20);
    _cleanup_json_ json_t *list = NULL;
    const char *text;

    fresh();
    CHECK(buf_append_str(&b, "[{\"created_by\":\"a") >= 0);
    for (size_t i = 0; i < 20000; i++)
        CHECK(buf_append_str(&b, "é") >= 0);
    CHECK(buf_append_str(&b, "\"}") >= 0);
    for (size_t i = 0; i < 2000; i++)
        CHECK(buf_append_str(&b, ",{}") >= 0);
    CHECK(buf_append_str(&b, "]") >= 0 && history_of(buf_data(&b), &list) >= 0);
    CHECK(json_array_size(list) == 1000);
    text = json_string_value(json_object_get(json_array_get(list, 0), "created_by"));
    CHECK(text && strlen(text) == (16 << 10) - 1); /* the next character would not fit completely */
}

TEST(collection_keeps_named_and_used_images)
{
    static char *const used[] = {(char *)B, NULL};
    struct images_collected n;
    json_t *record = NULL;

    fresh();
    add_layer(B, 7);
    add_layer(C, 100);
    add_layer(D, 1000);
    add_image(A, C, B);
    add_image(B, C, D);
    add_image(C, C, C);
    CHECK(images_tag(&store, "x", A, &err) >= 0);
    CHECK(images_lock(&store, true, false, &err) == 1);
    CHECK(images_collect(&store, used, false, remove_tree, NULL, &n, &err) >= 0);
    CHECK(n.images == 1 && n.layers == 0);
    CHECK(forget(images_read(&store, C, &record, &err)) == -ERR_NOT_FOUND);
    CHECK(images_collect(&store, NULL, false, remove_tree, NULL, &n, &err) >= 0);
    CHECK(n.images == 1 && n.layers == 1 && n.bytes == 1000);
    CHECK(images_has_layer(&store, B) && images_has_layer(&store, C) &&
          !images_has_layer(&store, D));
    CHECK(images_untag(&store, "x", &err) == 1);
    CHECK(images_collect(&store, NULL, false, remove_tree, NULL, &n, &err) >= 0);
    CHECK(n.images == 1 && n.layers == 2);
    CHECK(faccessat(store.dir,
                    "blobs/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", F_OK,
                    0) < 0);
}

#define MARK_C "layers/cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc/fresh"

TEST(a_layer_is_fresh_until_its_image_is_stored)
{
    fresh();
    add_layer(C, 100);
    CHECK(images_has_layer(&store, C) && faccessat(store.dir, MARK_C, F_OK, 0) == 0);
    add_image(A, C, C);
    CHECK(images_has_layer(&store, C) && faccessat(store.dir, MARK_C, F_OK, 0) < 0);
}

TEST(a_fresh_layer_of_another_boot_counts_as_missing)
{
    static const char *const marks[] = {"another", ""};
    struct images_collected n;

    for (size_t i = 0; i < ARRAY_SIZE(marks); i++) {
        fresh();
        add_layer(C, 100);
        CHECK(file_replace(store.dir, MARK_C, marks[i], strlen(marks[i]), 0600, false, &err) >= 0);
        CHECK(!images_has_layer(&store, C));
        add_layer(C, 200);
        CHECK(images_has_layer(&store, C) && images_layer_bytes(&store, C) == 200);
        CHECK(faccessat(store.dir, "tmp/x/fs", F_OK, 0) ==
              0); /* the replaced layer, to be removed */
        CHECK(images_collect(&store, NULL, false, remove_tree, NULL, &n, &err) >= 0);
        CHECK(faccessat(store.dir, "tmp/x", F_OK, 0) < 0);
    }
}

TEST(leftovers_and_damaged_records_are_removed)
{
    struct images_collected n;

    fresh();
    add_layer(C, 100);
    add_image(A, C, C);
    CHECK(images_tag(&store, "x", A, &err) >= 0);
    CHECK(mkdirat(store.dir, "tmp/layer-1-0", 0700) == 0);
    CHECK(mkdirat(store.dir, "tmp/layer-1-0/fs", 0700) == 0);
    CHECK(file_replace(store.dir,
                       "images/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                       "{", 1, 0600, false, &err) >= 0);
    CHECK(images_collect(&store, NULL, false, remove_tree, NULL, &n, &err) >= 0);
    CHECK(faccessat(store.dir, "tmp/layer-1-0", F_OK, 0) < 0);
    CHECK(faccessat(store.dir,
                    "images/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", F_OK,
                    0) < 0);
    CHECK(images_has_layer(&store, C));
}

TEST(a_shared_lock_blocks_a_collection)
{
    struct images other = IMAGES_INIT;

    fresh();
    CHECK(images_open(folder, &other, &err) >= 0);
    CHECK(images_lock(&store, false, true, &err) == 1);
    CHECK(images_lock(&other, true, false, &err) == 0);
    CHECK(images_lock(&other, false, false, &err) == 1);
    images_done(&other);
    images_done(&store);
    rmtree(AT_FDCWD, folder, NULL);
}

/* ---- copies ---- */

static void make_source(int dir)
{
    const struct timespec times[] = {{.tv_sec = 1}, {.tv_sec = 12345}};
    int fd;

    if (mkdirat(dir, "sub", 0755) < 0 ||
        file_replace(dir, "sub/data", "bytes", 5, 0644, false, &err) < 0 ||
        linkat(dir, "sub/data", dir, "again", 0) < 0 || symlinkat("/nowhere", dir, "link") < 0 ||
        whiteout_make(dir, "gone", &err) < 0)
        abort();
    fd = openat(dir, "sub", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || whiteout_opaque(fd, &err) < 0 || futimens(fd, times) < 0)
        abort();
    fd_close(fd);
    fd = openat(dir, "sparse", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, GIB(1)) < 0 || pwrite(fd, "end", 3, GIB(1) - 3) != 3 ||
        fsetxattr(fd, "user.note", "n", 1, 0) < 0 || fchmod(fd, 04751) < 0)
        abort();
    fd_close(fd);
}

static void open_pair(int *from, int *to)
{
    fresh();
    if (mkdirat(store.dir, "from", 0700) < 0 || mkdirat(store.dir, "to", 0700) < 0 ||
        dir_open(store.dir, "from", from, &err) < 0 || dir_open(store.dir, "to", to, &err) < 0)
        abort();
}

TEST(a_copy_is_equal_and_shares_no_inode)
{
    _cleanup_close_ int from = -1, to = -1, sub = -1;
    struct layer_copy_stats n = {0};
    struct stat a, b, c;
    char text[8];

    open_pair(&from, &to);
    make_source(from);
    CHECK(layer_copy_tree(from, to, false, &n, &err) == 0 && n.files == 2);
    CHECK(fstatat(from, "again", &a, 0) == 0 && fstatat(to, "again", &b, 0) == 0 &&
          fstatat(to, "sub/data", &c, 0) == 0);
    CHECK(b.st_ino == c.st_ino && b.st_ino != a.st_ino && b.st_nlink == 2);
    CHECK(readlinkat(to, "link", text, sizeof(text)) == 8 && memcmp(text, "/nowhere", 8) == 0);
    CHECK(fstatat(to, "gone", &b, AT_SYMLINK_NOFOLLOW) == 0 && whiteout_is(&b));
    CHECK(dir_open(to, "sub", &sub, &err) == 0 && whiteout_is_opaque(sub));
    CHECK(fstat(sub, &b) == 0 && b.st_mtime == 12345 && (b.st_mode & 0777) == 0755);
    CHECK(fstatat(to, "sparse", &b, 0) == 0 && b.st_size == (off_t)GIB(1));
    CHECK((b.st_mode & 07777) == 04751 && b.st_blocks * 512 < (off_t)MIB(1));
}

TEST(unsupported_file_types_are_not_copied)
{
    _cleanup_close_ int from = -1, to = -1;
    struct layer_copy_stats n = {0};

    open_pair(&from, &to);
    CHECK(mkfifoat(from, "fifo", 0600) == 0);
    CHECK(forget(layer_copy_tree(from, to, false, &n, &err)) == -ERR_SYSTEM);
}
