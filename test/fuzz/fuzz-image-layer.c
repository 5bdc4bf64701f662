/*
 * Unpacks a layer without its confined child. For every archive, nothing outside of the layer's
 * folder may change, and the folder may contain no device except whiteouts.
 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "image/archive/decompress.h"
#include "image/archive/unpack.h"
#include "lib/os/rmtree.h"
#include "lib/os/whiteout.h"

static char folder[] = "/tmp/fuzz-layer-XXXXXX";
static int top = -1;

static void leave(void)
{
    rmtree(AT_FDCWD, folder, NULL);
}

static void prepare(void)
{
    int fd;

    if (top < 0) {
        MUST(mkdtemp(folder));
        top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        MUST(top >= 0);
        atexit(leave);
        fd = openat(top, "canary", O_WRONLY | O_CREAT | O_EXCL, 0600);
        MUST(fd >= 0 && write(fd, "tweet", 5) == 5);
        close(fd);
    }
    MUST(mkdirat(top, "fs", 0755) == 0);
}

static int check_node(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)path;
    (void)kind;
    (void)at;
    MUST(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode) || S_ISLNK(st->st_mode) || whiteout_is(st));
    return 0;
}

static void check_outside(void)
{
    char text[8] = "";
    int fd = openat(top, "canary", O_RDONLY), n = 0;
    struct stat st;
    DIR *d;

    MUST(fd >= 0 && read(fd, text, sizeof(text)) == 5 && strcmp(text, "tweet") == 0);
    MUST(fstat(fd, &st) == 0 && st.st_nlink == 1 && (st.st_mode & 07777) == 0600);
    close(fd);
    d = opendir(folder);
    MUST(d);
    while (readdir(d))
        n++;
    closedir(d);
    MUST(n == 4); /* including "." and ".." */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int in = memfd_create("layer", MFD_CLOEXEC), plain = memfd_create("plain", MFD_CLOEXEC);
    struct decompress_range range = {.fd = in, .size = size};
    struct unpack_stats stats;
    char path[64];
    int fs;

    prepare();
    MUST(in >= 0 && plain >= 0 && write(in, data, size) == (ssize_t)size);
    fs = openat(top, "fs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(fs >= 0);
    if (decompress_stream(&range, plain, 1 << 20, NULL) >= 0 && lseek(plain, 0, SEEK_SET) == 0)
        unpack_layer(plain, fs, 0, UNPACK_BYTES_MAX, &stats, NULL);
    snprintf(path, sizeof(path), "%s/fs", folder);
    nftw(path, check_node, 16, FTW_PHYS);
    close(fs);
    close(in);
    close(plain);
    check_outside();
    MUST(rmtree(top, "fs", NULL) >= 0);
    return 0;
}
