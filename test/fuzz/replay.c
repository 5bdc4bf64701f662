/*
 * Runs the saved inputs of a folder through a fuzz target, in a build without libFuzzer: what was
 * found once stays found. TAP, one line for the whole corpus (a finding ends the process, which
 * meson reports).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>

#include "fuzz.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

enum { INPUT_MAX = 1 << 20 };

static int replay_file(int dirfd, const char *name)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *text = NULL;
    size_t len;

    if (file_read(dirfd, name, INPUT_MAX, &text, &len, &err) < 0) {
        printf("Bail out! %s\n", err.msg);
        return -1;
    }
    /* Said beforehand: it is the last line when this input is a finding. */
    printf("# %s\n", name);
    fflush(stdout);
    LLVMFuzzerTestOneInput((const uint8_t *)text, len);
    return 0;
}

static int replay_all(const char *folder)
{
    _cleanup_closedir_ DIR *d = opendir(folder);
    const struct dirent *e;
    int n = 0;

    if (!d) {
        printf("Bail out! %s: %s\n", folder, strerror(errno));
        return -1;
    }
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        if (replay_file(dirfd(d), e->d_name) < 0)
            return -1;
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    int n = argc == 2 ? replay_all(argv[1]) : -1;

    if (n < 0)
        return 1;
    printf("%sok 1 - %d saved inputs\n1..1\n", n ? "" : "not ", n);
    return n ? 0 : 1;
}
