/*
 * Tests each guard of a confined child: with the guard an attempt fails, and without it the same
 * attempt succeeds. confined.c is built into this test so that guards can be left out
 * (lib/base/guard.h). The child tries what an exploited parser would try. If other guards also
 * prevent an attempt, they are left out in both runs.
 */
#include "image/archive/confined.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/os/landlock.h"
#include "tap.h"

#define ABSTRACT "\0ripcord-confined"

static const char *without = ""; /* " NAME NAME " */

bool guard_on(const char *guard)
{
    char name[64];

    snprintf(name, sizeof(name), " %s ", guard);
    return !strstr(without, name);
}

/* ---- attempts in the child; true: it succeeded ---- */

static char base[] = "/tmp/ripcord-confined-XXXXXX";
static char apart[] = "/tmp/ripcord-confined-XXXXXX";
static int outside = -1; /* the folder `apart` with a canary, given to the child */
static int forgotten = -1;
static key_t shared = -1;

static bool try_call(void)
{
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
}

static bool try_root(void)
{
    return open("/etc/passwd", O_RDONLY) >= 0;
}

static bool try_folder(void)
{
    return openat(outside, "canary", O_RDONLY) >= 0;
}

static bool try_descriptor(void)
{
    struct stat st;

    return fstat(forgotten, &st) == 0 && st.st_rdev == makedev(1, 5);
}

static bool try_stdout(void)
{
    struct stat st;

    return fstat(STDOUT_FILENO, &st) < 0 || st.st_rdev != makedev(1, 3);
}

static bool try_memory(void)
{
    return mmap(NULL, 2UL << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
}

static bool try_capability(void)
{
    return prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 1;
}

static bool try_parent(void)
{
    return getppid() != 0;
}

static bool try_network(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memcpy(at.sun_path, ABSTRACT, sizeof(ABSTRACT));
    return connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
}

static bool try_ipc(void)
{
    return shmget(shared, 0, 0) >= 0;
}

/* clang-format off */
static const struct attempt {
    const char *guard;
    bool (*run)(void);
    const char *first; /* other guards that prevent it, too */
} attempts[] = {
    {"seccomp",      try_call,       ""},
    {"root",         try_root,       "landlock"},
    {"landlock",     try_folder,     ""},
    {"descriptors",  try_descriptor, ""},
    {"stdio",        try_stdout,     ""},
    {"rlimits",      try_memory,     ""},
    {"capabilities", try_capability, "seccomp"},
    {"pids",         try_parent,     "seccomp"},
    {"network",      try_network,    "seccomp landlock"},
    {"ipc",          try_ipc,        "seccomp"},
};
/* clang-format on */

/* ---- running an attempt ---- */

static int run_attempt(void *arg, int root, void *out, struct err *err)
{
    const struct attempt *a = arg;

    (void)root;
    (void)err;
    *(bool *)out = a->run();
    return 0;
}

/* 1: the attempt succeeded; 0: it failed, or the child was killed; -1: it could not be tried. */
static int breached(const struct attempt *a, const char *guards)
{
    struct confined_job job = {
        .fn = run_attempt, .arg = (void *)a, .dir = -1, .fds = {outside}, .n_fds = 1};
    const struct confined_ids ids = {.kind = CONFINED_OWN};
    _cleanup_err_ struct err err = ERR_INIT;
    struct confined c = CONFINED_INIT;
    bool through = false;
    int r;

    without = guards;
    r = dir_open(AT_FDCWD, base, &job.dir, &err);
    if (r >= 0)
        r = confined_start(&job, &ids, &c, &err);
    if (r >= 0 && confined_wait(&c, &through, sizeof(through), &err) < 0 && err.code != ERR_INVALID)
        r = -1; /* ERR_INVALID: a signal */
    if (err.msg)
        printf("# %s without '%s': %s\n", a->guard, guards, err.msg);
    confined_done(&c);
    fd_close(job.dir);
    without = "";
    return r < 0 ? -1 : through;
}

static bool can_be_tried(const struct attempt *a)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    /* A sanitizer needs more memory and more system calls than the guards allow. */
    if (STREQ(a->guard, "rlimits") || STREQ(a->guard, "seccomp"))
        return false;
#endif
    return landlock_possible() || !STREQ(a->guard, "landlock");
}

static bool prepare(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd;

    if (outside >= 0)
        return true;
    if (!mkdtemp(base) || chmod(base, 0755) < 0 || !mkdtemp(apart) || chmod(apart, 0755) < 0)
        return false;
    outside = open(apart, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    forgotten = open("/dev/zero", O_RDONLY); /* without O_CLOEXEC */
    shared = ftok(base, 'c');
    memcpy(at.sun_path, ABSTRACT, sizeof(ABSTRACT));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return file_replace(outside, "canary", "x", 1, 0644, false, NULL) >= 0 &&
           bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, 10) == 0 &&
           shmget(shared, 4096, IPC_CREAT | IPC_EXCL | 0666) >= 0;
}

TEST(each_guard_works_and_is_needed)
{
    CHECK(prepare());
    for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
        const struct attempt *a = &attempts[i];
        char first[64], all[96];

        snprintf(first, sizeof(first), " %s ", a->first);
        snprintf(all, sizeof(all), " %s %s ", a->first, a->guard);
        if (!can_be_tried(a))
            continue;
        printf("# %s\n", a->guard);
        CHECK(breached(a, first) == 0);
        CHECK(breached(a, all) == 1);
    }
}

TEST(nothing_is_left)
{
    int id = shmget(shared, 0, 0);

    CHECK(id >= 0 && shmctl(id, IPC_RMID, NULL) == 0);
    CHECK(unlinkat(outside, "canary", 0) == 0 && rmdir(apart) == 0);
    CHECK(rmdir(base) == 0);
}
