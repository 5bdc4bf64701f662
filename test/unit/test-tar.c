#include "lib/base/tar.h"

#include <errno.h>
#include <stdlib.h>

#include "tap.h"

/* A stream in memory that hands out at most `step` bytes at a time. */
struct mem {
    char data[1 << 16];
    size_t len, pos, step;
};

static ssize_t mem_read(void *arg, void *data, size_t len)
{
    struct mem *m = arg;
    size_t n = MIN(len, m->len - m->pos);

    n = MIN(n, m->step);
    memcpy(data, m->data + m->pos, n);
    m->pos += n;
    return (ssize_t)n;
}

static int mem_write(void *arg, const void *data, size_t len)
{
    struct mem *m = arg;

    if (m->len + len > sizeof(m->data))
        return -ENOSPC;
    memcpy(m->data + m->len, data, len);
    m->len += len;
    return 0;
}

static struct tar_entry make(enum tar_type type, const char *path, uint64_t size)
{
    struct tar_entry e = {
        .type = type, .mode = 0640, .uid = 1000, .gid = 7, .size = size, .mtime = 1700000000};

    snprintf(e.path, sizeof(e.path), "%s", path);
    return e;
}

static void write_sample(struct mem *m, const char *path)
{
    struct tar_entry e = make(TAR_FILE, path, 5);
    struct tar_writer w;

    *m = (struct mem){.step = 7};
    tar_writer_init(&w, mem_write, m);
    if (tar_put(&w, &e, NULL) < 0 || tar_write(&w, "he", 2, NULL) < 0 ||
        tar_write(&w, "llo", 3, NULL) < 0)
        abort();
    e = make(TAR_SYMLINK, "link", 0);
    snprintf(e.link, sizeof(e.link), "../target");
    if (tar_put(&w, &e, NULL) < 0 || tar_finish(&w, NULL) < 0)
        abort();
}

static struct mem m;
static struct tar_entry entry;

TEST(round_trip)
{
    struct tar_reader r;
    char data[16];

    write_sample(&m, "dir/file");
    tar_reader_init(&r, mem_read, &m);
    CHECK(tar_next(&r, &entry, NULL) == 1);
    CHECK_STR(entry.path, "dir/file");
    CHECK(entry.type == TAR_FILE && entry.mode == 0640 && entry.uid == 1000 && entry.gid == 7);
    CHECK(entry.mtime == 1700000000 && entry.size == 5);
    CHECK(tar_read(&r, data, sizeof(data), NULL) == 5 && memcmp(data, "hello", 5) == 0);
    CHECK(tar_read(&r, data, sizeof(data), NULL) == 0);
    CHECK(tar_next(&r, &entry, NULL) == 1 && entry.type == TAR_SYMLINK);
    CHECK_STR(entry.link, "../target");
    CHECK(tar_next(&r, &entry, NULL) == 0);
    CHECK(tar_next(&r, &entry, NULL) == 0);
}

TEST(long_path_goes_through_pax)
{
    char path[1001];
    struct tar_reader r;

    memset(path, 'p', 1000);
    path[500] = '/';
    path[1000] = '\0';
    write_sample(&m, path);
    tar_reader_init(&r, mem_read, &m);
    CHECK(tar_next(&r, &entry, NULL) == 1);
    CHECK_STR(entry.path, path);
}

TEST(attributes_are_pax_records)
{
    const struct tar_xattr x[] = {{"user.a", "1\0=", 3}, {"user.b", "", 0}};
    static const char a[] = "27 SCHILY.xattr.user.a=1\0=\n", b[] = "24 SCHILY.xattr.user.b=\n";
    struct tar_entry e = make(TAR_FILE, "f", 0);
    struct tar_writer w;

    e.xattrs = x;
    e.n_xattrs = 2;
    m = (struct mem){0};
    tar_writer_init(&w, mem_write, &m);
    CHECK(tar_put(&w, &e, NULL) == 0 && tar_finish(&w, NULL) == 0);
    CHECK(memmem(m.data, m.len, a, sizeof(a) - 1) != NULL);
    CHECK(memmem(m.data, m.len, b, sizeof(b) - 1) != NULL);
}

TEST(unread_data_is_skipped)
{
    struct tar_reader r;

    write_sample(&m, "f");
    tar_reader_init(&r, mem_read, &m);
    CHECK(tar_next(&r, &entry, NULL) == 1);
    CHECK(tar_next(&r, &entry, NULL) == 1);
    CHECK_STR(entry.path, "link");
}

TEST(cut_short_anywhere_is_an_error_or_the_end)
{
    write_sample(&m, "f");
    for (size_t cut = 1; cut < TAR_BLOCK + 5; cut++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct mem part = m;
        struct tar_reader r;
        char data[16];
        ssize_t n = 1;

        part.len = cut;
        tar_reader_init(&r, mem_read, &part);
        if (tar_next(&r, &entry, &err) == 1)
            while ((n = tar_read(&r, data, sizeof(data), &err)) > 0)
                ;
        CHECK(err.code == ERR_INVALID);
    }
}

TEST(flipped_bit_in_the_header_is_refused)
{
    write_sample(&m, "f");
    for (size_t i = 0; i < TAR_BLOCK; i += 13) {
        struct mem bad = m;
        struct tar_reader r;

        bad.data[i] = (char)(bad.data[i] ^ 1);
        tar_reader_init(&r, mem_read, &bad);
        CHECK(tar_next(&r, &entry, NULL) < 0);
    }
}

/* The header at `at` as one of another kind and size. */
static void forge(size_t at, char type, unsigned size)
{
    char *h = m.data + at;
    unsigned sum = 0;

    snprintf(h + 124, 12, "%011o", size);
    h[156] = type;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
}

TEST(headers_are_bounded_in_size_and_number)
{
    enum { CHAIN = 20, STEP = 2 * TAR_BLOCK };
    struct tar_reader r;

    write_sample(&m, "f");
    forge(0, 'x', 16 << 20);
    tar_reader_init(&r, mem_read, &m);
    CHECK(tar_next(&r, &entry, NULL) == -ERR_LIMIT);

    write_sample(&m, "f");
    forge(0, 'L', 5);
    for (size_t i = 1; i < CHAIN; i++)
        memcpy(m.data + i * STEP, m.data, STEP);
    forge((CHAIN - 1) * (size_t)STEP, '0', 5);
    m.len = CHAIN * (size_t)STEP;
    tar_reader_init(&r, mem_read, &m);
    CHECK(tar_next(&r, &entry, NULL) == -ERR_LIMIT);
}

TEST(writer_holds_to_the_size)
{
    struct tar_entry e = make(TAR_FILE, "f", 2);
    struct tar_writer w;

    m = (struct mem){0};
    tar_writer_init(&w, mem_write, &m);
    CHECK(tar_put(&w, &e, NULL) == 0);
    CHECK(tar_write(&w, "abc", 3, NULL) == -ERR_SYSTEM);
    CHECK(tar_finish(&w, NULL) == -ERR_SYSTEM);
}

TEST(full_disk_is_reported)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct tar_entry e = make(TAR_FILE, "f", 0);
    struct tar_writer w;

    m = (struct mem){.len = sizeof(m.data)};
    tar_writer_init(&w, mem_write, &m);
    CHECK(tar_put(&w, &e, &err) == -ERR_SYSTEM);
    CHECK(err.errnum == ENOSPC);
}
