/*
 * fd.c and log.c: files, folders, sockets and passed descriptors, in a private temporary folder.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "tap.h"

struct place {
    char path[64];
    int fd;
};

static void place_remove(int fd)
{
    _cleanup_closedir_ DIR *d = fdopendir(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    struct dirent *e;

    while (d && (e = readdir(d))) {
        _cleanup_close_ int sub = -1;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        sub = openat(fd, e->d_name, O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
            place_remove(sub);
        unlinkat(fd, e->d_name, sub >= 0 ? AT_REMOVEDIR : 0);
    }
}

static void place_done(struct place *p)
{
    if (p->fd >= 0)
        place_remove(p->fd);
    rmdir(p->path);
    p->fd = fd_close(p->fd);
}

static struct place place_make(void)
{
    struct place p = {.path = "/tmp/ripcord-test-fd-XXXXXX", .fd = -1};

    if (mkdtemp(p.path))
        p.fd = open(p.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p;
}

#define PLACE(p)                                                                                   \
    _cleanup_(place_done) struct place p = place_make();                                           \
    CHECK(p.fd >= 0)

TEST(file_replace_then_read)
{
    _cleanup_free_ char *text = NULL;
    struct stat st;
    size_t len = 0;
    PLACE(p);

    CHECK(file_replace(p.fd, "f", "one", 3, 0600, true, NULL) == 0);
    CHECK(file_replace(p.fd, "f", "a\0bc", 4, 0600, false, NULL) == 0);
    CHECK(file_read(p.fd, "f", 100, &text, &len, NULL) == 0);
    CHECK(len == 4 && memcmp(text, "a\0bc", 5) == 0);
    CHECK(fstatat(p.fd, "f", &st, 0) == 0 && (st.st_mode & 0777) == 0600);
    CHECK(faccessat(p.fd, "f.tmp", F_OK, 0) < 0);
}

TEST(file_replace_failure_leaves_nothing)
{
    _cleanup_err_ struct err err = ERR_INIT;
    PLACE(p);

    CHECK(mkdirat(p.fd, "d", 0700) == 0 && mkdirat(p.fd, "d/full", 0700) == 0);
    CHECK(file_replace(p.fd, "d", "x", 1, 0600, false, &err) == -ERR_SYSTEM);
    CHECK(strstr(err.msg, "rename 'd.tmp' to 'd'"));
    CHECK(faccessat(p.fd, "d.tmp", F_OK, 0) < 0);
}

TEST(file_replace_does_not_follow_a_planted_link)
{
    PLACE(p);

    CHECK(symlinkat("/nonexistent/victim", p.fd, "f.tmp") == 0);
    CHECK(file_replace(p.fd, "f", "x", 1, 0600, false, NULL) == -ERR_SYSTEM);
}

TEST(file_read_limits)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *text = NULL, *big = xcalloc(1, 10000);
    size_t len = 0;
    PLACE(p);

    CHECK(file_replace(p.fd, "f", big, 10000, 0600, false, NULL) == 0);
    CHECK(file_read(p.fd, "f", 9999, &text, &len, &err) == -ERR_LIMIT && !text);
    CHECK(strstr(err.msg, "larger than 9999 bytes"));
    CHECK(file_read(p.fd, "f", 10000, &text, &len, NULL) == 0 && len == 10000);
}

TEST(file_read_of_nothing)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *text = NULL;
    size_t len = 1;
    PLACE(p);

    CHECK(file_read(p.fd, "none", 10, &text, NULL, &err) == -ERR_SYSTEM);
    CHECK(err.errnum == ENOENT && strstr(err.msg, "open 'none'"));
    CHECK(file_replace(p.fd, "empty", "", 0, 0600, false, NULL) == 0);
    CHECK(file_read(p.fd, "empty", 10, &text, &len, NULL) == 0 && len == 0);
    CHECK_STR(text, "");
}

TEST(file_read_and_write_kernel_files)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *text = NULL;

    CHECK(file_read(AT_FDCWD, "/proc/self/status", 1 << 20, &text, NULL, NULL) == 0);
    CHECK(strstr(text, "Pid:"));
    CHECK(file_write(AT_FDCWD, "/proc/self/comm", "renamed", NULL) == 0);
    CHECK(file_write(AT_FDCWD, "/proc/self/none", "x", &err) == -ERR_SYSTEM);
    CHECK(err.errnum == ENOENT);
}

TEST(dir_make_all_is_idempotent)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;
    struct stat st;
    PLACE(p);

    CHECK(dir_make_all(p.fd, "a/b/c", 0700, NULL) == 0);
    CHECK(dir_make_all(p.fd, "a/b/c", 0700, NULL) == 0);
    CHECK(dir_make_all(p.fd, "a/b/d/", 0700, NULL) == 0);
    CHECK(fstatat(p.fd, "a/b/c", &st, 0) == 0 && (st.st_mode & 0777) == 0700);
    CHECK(file_replace(p.fd, "file", "x", 1, 0600, false, NULL) == 0);
    CHECK(dir_make_all(p.fd, "file/x", 0700, &err) == -ERR_SYSTEM && err.errnum == ENOTDIR);
    CHECK(dir_open(p.fd, "a/b", &fd, NULL) == 0 && fd >= 0);
}

TEST(dir_open_refuses_links)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int fd = -1;
    PLACE(p);

    CHECK(symlinkat("/tmp", p.fd, "link") == 0);
    CHECK(dir_open(p.fd, "link", &fd, &err) == -ERR_SYSTEM && fd == -1);
    CHECK(err.errnum == ELOOP || err.errnum == ENOTDIR);
}

TEST(fd_read_full_and_write_all)
{
    int pipes[2];
    char text[8] = "";

    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    CHECK(fd_write_all(pipes[1], "abc", 3) == 0 && fd_write_all(pipes[1], "de", 2) == 0);
    close(pipes[1]);
    CHECK(fd_read_full(pipes[0], text, sizeof(text)) == 5);
    CHECK(memcmp(text, "abcde", 5) == 0);
    CHECK(fd_read_full(pipes[0], text, sizeof(text)) == 0);
    close(pipes[0]);
    CHECK(fd_read_full(-1, text, 1) == -EBADF && fd_write_all(-1, text, 1) == -EBADF);
}

TEST(fd_set_nonblock_both_ways)
{
    int pipes[2];
    char c;

    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    CHECK(fd_set_nonblock(pipes[0], true) == 0);
    CHECK(read(pipes[0], &c, 1) < 0 && errno == EAGAIN);
    CHECK(fd_set_nonblock(pipes[0], false) == 0);
    CHECK(!(fcntl(pipes[0], F_GETFL) & O_NONBLOCK));
    close(pipes[0]);
    close(pipes[1]);
    CHECK(fd_set_nonblock(-1, true) == -EBADF);
}

TEST(unix_socket_far_down_the_tree)
{
    _cleanup_close_ int dir = -1, server = -1, client = -1;
    char deep[200];
    struct stat st;
    PLACE(p);

    memset(deep, 'd', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    CHECK(dir_make_all(p.fd, deep, 0700, NULL) == 0);
    CHECK(dir_open(p.fd, deep, &dir, NULL) == 0);
    CHECK(unix_listen(dir, "s", SOCK_STREAM, 0600, &server, NULL) == 0);
    CHECK(fstatat(dir, "s", &st, 0) == 0 && S_ISSOCK(st.st_mode) && (st.st_mode & 0777) == 0600);
    CHECK(unix_connect(dir, "s", SOCK_STREAM, &client, NULL) == 0);
    CHECK(fcntl(client, F_GETFD) & FD_CLOEXEC);
}

static void *make_folders(void *arg)
{
    static const char name[] = "folder";
    const struct place *p = arg;
    struct stat st;
    intptr_t wrong = 0;

    for (int i = 0; i < 3000; i++) {
        if (mkdirat(p->fd, name, 0700) < 0 || fstatat(p->fd, name, &st, 0) < 0)
            return (void *)-1;
        wrong += (st.st_mode & 0777) != 0700;
        unlinkat(p->fd, name, AT_REMOVEDIR);
    }
    return (void *)wrong;
}

/* The umask is the process's: to bend it for one socket once took a folder's x away, and with it a
 * command's output. */
TEST(unix_listen_bends_no_mode_of_other_threads)
{
    struct stat st;
    pthread_t thread;
    void *wrong = NULL;
    int fd = -1;
    PLACE(p);

    CHECK(pthread_create(&thread, NULL, make_folders, &p) == 0);
    for (int i = 0; i < 3000; i++) {
        CHECK(unix_listen(p.fd, "s", SOCK_STREAM, 0620, &fd, NULL) == 0);
        fd = fd_close(fd);
    }
    CHECK(fstatat(p.fd, "s", &st, 0) == 0 && (st.st_mode & 0777) == 0620);
    CHECK(pthread_join(thread, &wrong) == 0 && wrong == NULL);
}

TEST(unix_connect_by_path)
{
    _cleanup_close_ int server = -1, client = -1, above = -1;
    _cleanup_err_ struct err err = ERR_INIT;
    char path[128];
    const char *name;
    PLACE(p);

    CHECK(unix_listen(p.fd, "s", SOCK_STREAM, 0600, &server, NULL) == 0);
    snprintf(path, sizeof(path), "%s/s", p.path);
    CHECK(unix_connect_path(path, SOCK_STREAM, &client, NULL) == 0 && client >= 0);
    CHECK(dir_open_above(path, &above, &name, NULL) == 0 && name == path + strlen(path) - 1);
    above = fd_close(above);
    CHECK(dir_open_above("/s", &above, &name, NULL) == 0);
    CHECK_STR(name, "s");
    snprintf(path, sizeof(path), "%s/none/s", p.path);
    CHECK(unix_connect_path(path, SOCK_STREAM, &client, &err) == -ERR_SYSTEM);
    CHECK(err.errnum == ENOENT);
    CHECK(unix_connect_path("s", SOCK_STREAM, &client, NULL) == -ERR_INVALID);
}

TEST(unix_connect_distinguishes_missing_from_dead)
{
    _cleanup_err_ struct err missing = ERR_INIT, dead = ERR_INIT, wrong = ERR_INIT;
    char name[120];
    int fd = -1;
    PLACE(p);

    CHECK(unix_connect(p.fd, "s", SOCK_STREAM, &fd, &missing) == -ERR_SYSTEM);
    CHECK(missing.errnum == ENOENT);
    CHECK(unix_listen(p.fd, "s", SOCK_STREAM, 0600, &fd, NULL) == 0);
    fd = fd_close(fd);
    CHECK(unix_connect(p.fd, "s", SOCK_STREAM, &fd, &dead) == -ERR_SYSTEM);
    CHECK(dead.errnum == ECONNREFUSED && fd == -1);
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    CHECK(unix_connect(p.fd, name, SOCK_STREAM, &fd, &wrong) == -ERR_INVALID);
}

TEST(fd_send_and_recv_pass_descriptors)
{
    int pair[2], pipes[2], got[2] = {-1, -1};
    char text[8] = "";
    size_t n = 2;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    CHECK(pipe2(pipes, 0) == 0);
    CHECK(fd_send(pair[0], "hi", 2, pipes, 2, 0) == 0);
    CHECK(fd_recv(pair[1], text, sizeof(text), got, &n, 0) == 2);
    CHECK(n == 2 && fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    CHECK(fd_write_all(got[1], "x", 1) == 0 && fd_read_full(pipes[0], text, 1) == 1);
    for (int i = 0; i < 2; i++) {
        close(got[i]);
        close(pipes[i]);
    }
    close(pair[0]);
    n = 2;
    CHECK(fd_recv(pair[1], text, sizeof(text), got, &n, 0) == 0 && n == 0);
    close(pair[1]);
}

static int count_fds(void)
{
    _cleanup_closedir_ DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (d && readdir(d))
        n++;
    return n;
}

TEST(fd_recv_leaks_no_unasked_descriptors)
{
    int pair[2], fds[3] = {0, 1, 2}, got[1], before;
    char text[8];
    size_t n = 1;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    before = count_fds();
    CHECK(fd_send(pair[0], "x", 1, fds, 3, 0) == 0);
    CHECK(fd_recv(pair[1], text, sizeof(text), got, &n, 0) == 1 && n == 1);
    close(got[0]);
    CHECK(fd_send(pair[0], "x", 1, fds, 3, 0) == 0);
    CHECK(fd_recv(pair[1], text, sizeof(text), NULL, NULL, 0) == 1);
    CHECK(count_fds() == before);
    close(pair[0]);
    close(pair[1]);
}

TEST(fd_recv_refuses_a_cut_message)
{
    int pair[2], fds[1] = {0}, got[1], before;
    char text[4];
    size_t n = 1;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    before = count_fds();
    CHECK(fd_send(pair[0], "too long", 8, fds, 1, 0) == 0);
    CHECK(fd_recv(pair[1], text, sizeof(text), got, &n, 0) == -EMSGSIZE);
    CHECK(count_fds() == before);
    close(pair[0]);
    CHECK(fd_send(pair[1], "x", 1, NULL, 0, 0) == -EPIPE);
    CHECK(fd_send(pair[1], "x", 1, fds, FD_SEND_MAX + 1, 0) == -EINVAL);
    close(pair[1]);
}

/* ---- log ---- */

/* What `level` and `msg` put on standard error. */
static char *logged(enum log_level level, const char *msg)
{
    int pipes[2], saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    char *text = xcalloc(1, 16384);

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return text;
    dup2(pipes[1], STDERR_FILENO);
    log_at(level, "%s", msg);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipes[1]);
    (void)!fd_read_full(pipes[0], text, 16383);
    close(pipes[0]);
    return text;
}

TEST(log_lines_are_single_and_safe)
{
    _cleanup_free_ char *s = logged(LOG_LEVEL_WARN, "bad \033[2J\nsecond line");

    CHECK(strstr(s, "Z warn  bad \\x1b[2J\\nsecond line\n"));
    CHECK(strchr(s, '\n') == s + strlen(s) - 1);
}

TEST(log_level_filters)
{
    _cleanup_free_ char *hidden = logged(LOG_LEVEL_DEBUG, "quiet"), *shown = NULL;
    enum log_level level;

    CHECK_STR(hidden, "");
    CHECK(log_parse_level("debug", &level, NULL) == 0 && level == LOG_LEVEL_DEBUG);
    log_set_level(level);
    shown = logged(LOG_LEVEL_DEBUG, "loud");
    log_set_level(LOG_LEVEL_INFO);
    CHECK(strstr(shown, "debug loud\n"));
    CHECK(log_parse_level("chatty", &level, NULL) == -ERR_INVALID);
}

TEST(log_json_is_one_object_a_line)
{
    _cleanup_free_ char *s = NULL;

    log_set_json(true);
    s = logged(LOG_LEVEL_INFO, "say \"hi\"\n");
    log_set_json(false);
    CHECK(strncmp(s, "{\"time\":\"", 9) == 0);
    CHECK(strstr(s, "\"level\":\"info\",\"message\":\"say \\\"hi\\\"\\u000a\"}\n"));
}

TEST(log_cuts_what_is_too_long)
{
    _cleanup_free_ char *big = xmalloc(100001), *s = NULL;

    memset(big, '\001', 100000);
    big[100000] = '\0';
    s = logged(LOG_LEVEL_ERROR, big);
    CHECK(strlen(s) > 1000 && strlen(s) <= 8192 && s[strlen(s) - 1] == '\n');
}
