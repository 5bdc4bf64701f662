#include "lib/os/cgroup-files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/limits.h"
#include "lib/base/macro.h"
#include "lib/base/time.h"

#define FREEZE_WAIT (2 * USEC_PER_SEC)

int cgroup_write(int dirfd, const char *file, const char *text)
{
    _cleanup_close_ int fd = -1;

    if (dirfd < 0)
        return -EBADF;
    fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return -errno;
    return 0;
}

int cgroup_write_u64(int dirfd, const char *file, uint64_t v)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    return cgroup_write(dirfd, file, text);
}

static bool cgroup_files_read_text(int dirfd, const char *file, char *buf, size_t size)
{
    _cleanup_close_ int fd = -1;
    ssize_t n;

    if (dirfd < 0)
        return false;
    fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, buf, size - 1);
    if (n < 0)
        return false;
    buf[n] = '\0';
    return true;
}

/* Reads the file before it polls: poll(2) reports changes since the last read. */
int cgroup_await_events(int dirfd, bool frozen)
{
    const char *wanted = frozen ? "frozen 1" : "frozen 0";
    const struct deadline by = deadline_in(FREEZE_WAIT);
    _cleanup_close_ int fd = openat(dirfd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    char text[256];
    ssize_t n;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLPRI};

        n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
        if (n < 0)
            return -errno;
        text[n] = '\0';
        if (strstr(text, wanted))
            return 0;
        if (deadline_passed(&by))
            return -ETIMEDOUT;
        poll(&p, 1, deadline_ms(&by));
    }
}

static bool cgroup_files_take_number(const char *text, uint64_t *ret)
{
    char *end;
    uint64_t v = strtoull(text, &end, 10);

    if (end == text)
        return false;
    *ret = v;
    return true;
}

bool cgroup_find(int dirfd, const char *file, const char *key, uint64_t *ret)
{
    size_t len = key ? strlen(key) : 0;
    char text[8192], *p = text, *line;

    if (!cgroup_files_read_text(dirfd, file, text, sizeof(text)))
        return false;
    if (!key)
        return cgroup_files_take_number(text, ret);
    while ((line = strsep(&p, "\n")))
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return cgroup_files_take_number(line + len + 1, ret);
    return false;
}

uint64_t cgroup_read_u64(int dirfd, const char *file)
{
    return cgroup_read_key(dirfd, file, NULL);
}

uint64_t cgroup_read_key(int dirfd, const char *file, const char *key)
{
    uint64_t v = 0;

    cgroup_find(dirfd, file, key, &v);
    return v;
}

bool cgroup_has_word(int dirfd, const char *file, const char *word)
{
    char text[1024], *p = text, *w;

    if (!cgroup_files_read_text(dirfd, file, text, sizeof(text)))
        return false;
    while ((w = strsep(&p, " \n")))
        if (STREQ(w, word))
            return true;
    return false;
}

bool cgroup_is_real_root(int dirfd)
{
    return faccessat(dirfd, "cgroup.type", F_OK, 0) < 0; /* only the root does not have this file */
}

uint32_t cgroup_controllers(int dirfd, char ret[static CGROUP_CONTROLLERS_MAX])
{
    static const struct {
        const char *name;
        enum limit_bit bit;
    } used[] = {{"memory", LIMIT_MEMORY}, {"cpu", LIMIT_CPUS}, {"pids", LIMIT_PIDS}};
    uint32_t missing = 0;
    size_t len = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(used); i++) {
        if (cgroup_has_word(dirfd, "cgroup.controllers", used[i].name))
            len += (size_t)snprintf(ret + len, CGROUP_CONTROLLERS_MAX - len, "%s+%s",
                                    len ? " " : "", used[i].name);
        else
            missing |= used[i].bit;
    }
    return missing;
}
