/* Folders and shims that are made in advance: taken, replaced, and not left behind. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/engine/native/native.h"
#include "daemon/engine/native/prewarmed.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "proto/plan.h"
#include "tap.h"

struct bed {
    char dir[40];
    int dirfd, shim, devnull;
    struct prewarmed *prewarmed;
};

static int subfolder(struct bed *b, const char *name)
{
    int fd = -1;

    if (mkdirat(b->dirfd, name, 0700) < 0 || dir_open(b->dirfd, name, &fd, NULL) < 0)
        abort();
    return fd;
}

static unsigned entries(const struct bed *b, const char *name)
{
    struct stat st;

    /* A folder has two links, and one more for each folder in it. */
    return fstatat(b->dirfd, name, &st, 0) < 0 ? 0 : (unsigned)st.st_nlink - 2;
}

static void bed_new(struct bed *b)
{
    const char *shim = getenv("RIPCORD_SHIM");
    _cleanup_err_ struct err err = ERR_INIT;

    *b = (struct bed){.dirfd = -1, .shim = -1};
    snprintf(b->dir, sizeof(b->dir), "/tmp/test-prewarmed-XXXXXX");
    if (!mkdtemp(b->dir) || dir_open(AT_FDCWD, b->dir, &b->dirfd, NULL) < 0 ||
        native_seal_shim(shim ? shim : "src/bin/ripcord-shim", &b->shim, &err) < 0) {
        printf("# %s\n", err.msg ? err.msg : "no temporary folder");
        abort();
    }
    b->devnull = open("/dev/null", O_RDWR | O_CLOEXEC);
    b->prewarmed =
        prewarmed_new(b->shim, b->devnull, false,
                      (int[PREWARMED_KINDS]){subfolder(b, "sandboxes"), subfolder(b, "execs"),
                                             subfolder(b, "run")});
    for (int i = 0; i < 1000 && entries(b, "run") < 4; i++) /* made last */
        usleep(10000);
}

static void bed_end(struct bed *b)
{
    prewarmed_free(b->prewarmed);
    fd_close(b->shim);
    fd_close(b->devnull);
    fd_close(b->dirfd);
    rmtree(AT_FDCWD, b->dir, NULL);
}

/* What a shim with this plan says; it ends after that. */
static int say(const struct prewarmed_shim *shim)
{
    struct pollfd p = {.fd = shim->control, .events = POLLIN};
    char packet[4096];
    struct sup_reader r;
    ssize_t len =
        poll(&p, 1, 60000) > 0 ? fd_recv(shim->control, packet, sizeof(packet), NULL, NULL, 0) : -1;

    waitpid(shim->pid, NULL, 0);
    fd_close(shim->control);
    return len <= 0 || sup_read(&r, packet, (size_t)len, NULL) < 0 ? -1 : r.head.type;
}

static void kill_and_wait(pid_t pid)
{
    kill(pid, SIGKILL);
    waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
}

/* Those that wait, whichever thread started them; they are dead then, if not reaped. */
static void kill_children(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc/self/task");

    for (const struct dirent *e; d && (e = readdir(d));) {
        char path[300], text[256] = "";
        _cleanup_close_ int fd = -1;

        snprintf(path, sizeof(path), "/proc/self/task/%s/children", e->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
            continue;
        for (char *p = text, *end; strtol(p, &end, 10) > 0; p = end)
            kill_and_wait((pid_t)strtol(p, NULL, 10));
    }
}

TEST(folders_are_taken_and_made_again)
{
    int target;
    struct bed b;

    bed_new(&b);
    target = subfolder(&b, "target");
    CHECK(entries(&b, "sandboxes") == 4 && entries(&b, "run") == 4);
    for (int i = 0; i < 20; i++) {
        char name[8];

        snprintf(name, sizeof(name), "f%d", i);
        CHECK(prewarmed_folder(b.prewarmed, PREWARMED_SANDBOX, target, name) == 0);
        CHECK(prewarmed_folder(b.prewarmed, PREWARMED_SANDBOX, target, name) == -EEXIST);
    }
    CHECK(entries(&b, "target") == 20);
    fd_close(target);
    bed_end(&b);
}

TEST(a_shim_takes_its_plan_or_another_does)
{
    _cleanup_close_ int plan = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct prewarmed_shim shim[4];
    struct bed b;

    bed_new(&b);
    /* Its complaint about the plan shows that it has read the plan. */
    CHECK(prewarmed_shim(b.prewarmed, (int[]){plan, b.devnull}, 2, &shim[0], NULL) >= 0);
    CHECK(say(&shim[0]) == SUP_FAILED);
    /* All waiting shims are killed: the next start makes its own. */
    kill_children();
    for (int i = 0; i < 4; i++)
        CHECK(prewarmed_shim(b.prewarmed, (int[]){plan, b.devnull}, 2, &shim[i], NULL) >= 0);
    for (int i = 0; i < 4; i++)
        CHECK(say(&shim[i]) == SUP_FAILED);
    bed_end(&b);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

TEST(nothing_is_left_after_the_end)
{
    struct bed b;

    bed_new(&b);
    prewarmed_free(TAKE_PTR(b.prewarmed));
    CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    CHECK(entries(&b, "sandboxes") == 0 && entries(&b, "run") == 0);
    bed_end(&b);
}
