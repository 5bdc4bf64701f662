/*
 * The shim without namespaces, on the real kernel: with a user of the sandbox's own, and with the
 * user of the shim.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/landlock.h"
#include "lib/os/pidfd.h"
#include "shim-fixture.h"
#include "tap.h"

enum { OWN_ID = 0x70012345 };
static const uint32_t users[] = {OWN_ID, 0};

#define UP(b, user)                                                                                \
    do {                                                                                           \
        if (geteuid() != 0)                                                                        \
            SKIP("needs root");                                                                    \
        if (!landlock_has_scopes())                                                                \
            SKIP("this kernel's Landlock has no scopes");                                          \
        box_init_confined(&(b), user);                                                             \
        if (box_up(&(b)) < 0)                                                                      \
            printf("# start: %s\n", (b).err.msg);                                                  \
        CHECK((b).err.code == ERR_NONE);                                                           \
    } while (0)

/* Processes of this test whose command line has this word. */
static int count(const char *word)
{
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    const struct dirent *e;
    int n = 0;

    while (proc && (e = readdir(proc))) {
        _cleanup_free_ char *text = NULL;
        char path[NAME_MAX + 16];
        size_t len = 0;

        snprintf(path, sizeof(path), "%s/cmdline", e->d_name);
        if (e->d_name[0] < '1' || e->d_name[0] > '9' ||
            file_read(dirfd(proc), path, 1 << 16, &text, &len, NULL) < 0)
            continue;
        n += memmem(text, len, word, strlen(word)) != NULL;
    }
    return n;
}

static bool gone(const char *word)
{
    struct deadline by = deadline_in(BOX_WAIT_MS * USEC_PER_MSEC);

    while (count(word) && !deadline_passed(&by))
        usleep(1000);
    return count(word) == 0;
}

/* A word that only processes of this test and user have. */
#define WORD(name, i)                                                                              \
    char name[32];                                                                                 \
    snprintf(name, sizeof(name), "100%d.%d", (int)(i), (int)getpid())

TEST(streams_and_status)
{
    for (size_t i = 0; i < 2; i++) {
        struct box_result r;
        _cleanup_box_ struct box b = BOX_EMPTY;

        UP(b, users[i]);
        box_run(&b, "a1", "echo out; echo err >&2; exit 7", &r);
        CHECK(r.ended);
        CHECK_STR(r.out, "out\n");
        CHECK_STR(r.err, "err\n");
        CHECK(r.rec.cause == END_EXITED && r.rec.exit_code == 7 && r.rec.signal == 0);
        CHECK(r.rec.drained && r.rec.memory_limit == 0);
        box_result_done(&r);
        box_run(&b, "a2", "kill -TERM $$", &r);
        CHECK(r.rec.cause == END_SIGNALED && r.rec.signal == SIGTERM && r.rec.exit_code == -1);
        box_result_done(&r);
        box_run(&b, "a3", "nosuchcommand", &r);
        CHECK(r.rec.exit_code == 127);
        box_result_done(&r);
        CHECK(b.unenforced == (LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS));
        box_stop(&b);
    }
}

TEST(the_user_and_its_folder)
{
    _cleanup_box_ struct box b = BOX_EMPTY;
    _cleanup_free_ char *said = NULL;

    UP(b, OWN_ID);
    said =
        xasprintf("%u %u %u %s/data/" PLAN_CONFINED_HOME "\n", OWN_ID, OWN_ID, OWN_ID - 1, b.dir);
    SAYS(b, "a1", "echo $(id -u) $(id -G) $(pwd)", said);
    SAYS(b, "a2", "echo kept > f; cat f; echo no > ../f; cat /etc/shadow", "kept\n");
    box_stop(&b);
}

TEST(a_kill_takes_the_whole_tree)
{
    for (size_t i = 0; i < 2; i++) {
        _cleanup_free_ char *script = NULL;
        _cleanup_box_ struct box b = BOX_EMPTY;
        struct box_result r;
        struct sup_writer w;
        WORD(word, i);

        UP(b, users[i]);
        /* in sessions of their own, without a parent, and some that fork and end for ever */
        script =
            xasprintf("for n in 1 2 3 4 5; do setsid sh -c 'sleep %s & sleep %s & exit' & done; "
                      "f() { f & }; (f; sleep 1) & echo up; sleep %s",
                      word, word, word);
        box_exec_begin(&b, &w, "a1", script);
        box_send(&b, &w);
        CHECK(box_said(&b, "a1", "up"));
        box_begin(&b, &w, SUP_KILL, "a1");
        box_send(&b, &w);
        box_collect(&b, "a1", &r);
        CHECK(r.rec.cause == END_KILLED && r.rec.signal == SIGKILL);
        box_result_done(&r);
        CHECK(gone(word));
        SAYS(b, "a2", "echo alive", "alive\n");
        box_stop(&b);
    }
}

TEST(a_daemonised_child_lives_until_the_stop)
{
    for (size_t i = 0; i < 2; i++) {
        _cleanup_free_ char *script = NULL;
        _cleanup_box_ struct box b = BOX_EMPTY;
        WORD(word, i + 10);

        UP(b, users[i]);
        script = xasprintf("setsid sleep %s >/dev/null 2>&1 </dev/null & echo started", word);
        SAYS(b, "a1", script, "started\n");
        SAYS(b, "a2", "echo next", "next\n");
        CHECK(count(word) == 1);
        box_stop(&b);
        CHECK(count(word) == 0);
    }
}

TEST(nothing_outlives_a_killed_shim)
{
    _cleanup_free_ char *script = NULL;
    _cleanup_box_ struct box b = BOX_EMPTY;
    struct sup_writer w;
    WORD(word, 20);

    UP(b, OWN_ID);
    script = xasprintf("setsid sleep %s & echo up; sleep %s", word, word);
    box_exec_begin(&b, &w, "a1", script);
    box_send(&b, &w);
    CHECK(box_said(&b, "a1", "up") && count(word) >= 2);
    pidfd_signal(b.pidfd, SIGKILL);
    CHECK(gone(word));
}

/* Also those that have ended and were not reaped. */
static int children_of(const struct box *b)
{
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    const struct dirent *e;
    int n = 0;

    while (proc && (e = readdir(proc))) {
        _cleanup_free_ char *text = NULL;
        char path[NAME_MAX + 16];
        int parent;

        snprintf(path, sizeof(path), "%s/stat", e->d_name);
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
            file_read(dirfd(proc), path, 4096, &text, NULL, NULL) >= 0 && strrchr(text, ')') &&
            sscanf(strrchr(text, ')'), ") %*c %d", &parent) == 1)
            n += parent == b->shim;
    }
    return n;
}

/* As the kernel's OOM killer might. */
TEST(nothing_outlives_a_killed_reaper)
{
    _cleanup_free_ char *script = NULL, *packet = xmalloc(SUP_MSG_MAX);
    _cleanup_box_ struct box b = BOX_EMPTY;
    struct box_result r;
    struct sup_writer w;
    size_t len;
    char *end;
    int pid;
    WORD(word, 30);

    UP(b, OWN_ID);
    script = xasprintf("setsid sleep %s & echo $PPID.; sleep %s", word, word);
    box_exec_begin(&b, &w, "a1", script);
    box_send(&b, &w);
    CHECK(box_said(&b, "a1", "."));
    free(script);
    script = box_heard(&b, "a1");
    pid = (int)strtol(script, &end, 10);
    CHECK(pid > 1 && *end == '.' && kill(pid, SIGKILL) == 0);
    box_collect(&b, "a1", &r);
    CHECK(r.rec.cause == END_ENGINE_LOST && r.rec.exit_code == -1);
    CHECK(strstr(r.rec.message, "was killed"));
    box_result_done(&r);
    CHECK(box_expect(&b, SUP_STOPPED, packet, &len, NULL));
    CHECK(gone(word));
}

TEST(many_execs_leave_nothing)
{
    _cleanup_box_ struct box b = BOX_EMPTY;

    UP(b, OWN_ID);
    for (int i = 0; i < 50; i++) {
        char id[8];

        snprintf(id, sizeof(id), "b%d", i);
        SAYS(b, id, "echo x", "x\n");
    }
    for (int i = 0; i < 1000 && children_of(&b); i++) /* the last ones are still ending */
        usleep(1000);
    CHECK(children_of(&b) == 0);
    box_stop(&b);
}
