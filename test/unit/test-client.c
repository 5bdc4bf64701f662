/* The public library against a scripted daemon. Output must be exact across a lost connection. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/path.h"
#include "lib/base/xalloc.h"
#include "proto/exec-frames.h"
#include "ripcord.h"
#include "tap.h"

static char root[] = "/tmp/ripcord-test-client-XXXXXX";

static void put(struct buf *b, int type, uint64_t offset, const char *text)
{
    char data[128];
    size_t len = strlen(text);

    frame_put_u64(data, offset);
    memcpy(data + 8, text, len);
    if (frame_append(b, (enum frame_type)type, data, len + 8) < 0)
        abort();
}

static void put_text(struct buf *b, int type, const char *text)
{
    if (frame_append(b, (enum frame_type)type, text, strlen(text)) < 0)
        abort();
}

/* Reads one request head and its JSON body, if any. Only the head is stored. */
static void read_request(int fd, char *head, size_t size)
{
    ssize_t n = recv(fd, head, size - 1, 0);

    head[n > 0 ? n : 0] = '\0';
}

static void answer(int fd, struct buf *frames, size_t cut)
{
    static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                               "Upgrade: ripcord-exec/1\r\n\r\n";

    fd_write_all(fd, head, sizeof(head) - 1);
    fd_write_all(fd, buf_data(frames), frames->len - cut);
}

static void serve_first(int fd)
{
    _cleanup_buf_ struct buf b = BUF_INIT(65536);
    char head[4096];

    read_request(fd, head, sizeof(head));
    put_text(&b, FRAME_STARTED, "{\"sandbox\":\"box\",\"exec\":\"x1\",\"pid\":1}");
    put(&b, FRAME_STDOUT, 0, "hello ");
    put(&b, FRAME_STDERR, 0, "oops");
    put(&b, FRAME_STDOUT, 6, "cut in two");
    answer(fd, &b, 3); /* ends within a frame */
}

static void serve_second(int fd)
{
    _cleanup_buf_ struct buf b = BUF_INIT(65536);
    char head[4096], gap[17] = {2};

    read_request(fd, head, sizeof(head));
    if (!strstr(head, "/v1/sandboxes/box/execs/x1/attach?stdout_offset=6&stderr_offset=4"))
        _exit(3);
    put(&b, FRAME_STDOUT, 0, "hello wor"); /* repeats, as a careless daemon might */
    put(&b, FRAME_STDOUT, 9, "ld");
    frame_put_u64(gap + 1, 4);
    frame_put_u64(gap + 9, 10);
    if (frame_append(&b, FRAME_GAP, gap, sizeof(gap)) < 0)
        abort();
    put(&b, FRAME_STDERR, 10, "later");
    put(&b, FRAME_STDERR, 20, "unannounced");
    put_text(&b, FRAME_END, "{\"cause\":\"exited\",\"status\":7}");
    answer(fd, &b, 0);
}

static void serve_error(int fd)
{
    static const char body[] =
        "{\"error\":{\"code\":\"not_found\",\"message\":\"no sandbox 'x'\",\"hint\":\"Make it.\"}}";
    char head[4096], text[512];

    read_request(fd, head, sizeof(head));
    snprintf(
        text, sizeof(text),
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        sizeof(body) - 1, body);
    fd_write_all(fd, text, strlen(text));
}

/* Closes the connection after the request arrived, without reading it. */
static void serve_deaf(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    poll(&p, 1, -1);
}

/* Reads the request and closes the connection without a response. */
static void serve_mute(int fd)
{
    char head[4096];

    read_request(fd, head, sizeof(head));
}

/* Reports the start of a command that keeps running. */
static void serve_started(int fd)
{
    _cleanup_buf_ struct buf b = BUF_INIT(65536);
    char head[4096];

    read_request(fd, head, sizeof(head));
    put_text(&b, FRAME_STARTED, "{\"sandbox\":\"box\",\"exec\":\"x1\",\"pid\":1}");
    answer(fd, &b, 0);
    read_request(fd, head, sizeof(head)); /* until the client closes */
}

static pid_t serve(void (*const *scripts)(int), size_t n)
{
    _cleanup_path_roots_ struct path_roots paths = PATH_ROOTS_INIT;
    _cleanup_close_ int dir = -1, listener = -1;
    pid_t pid;

    if (path_roots_init(&paths, root, NULL) < 0 || path_roots_make(&paths, NULL) < 0)
        abort();
    dir = open(paths.run, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unix_listen(dir, "ripcord.sock", SOCK_STREAM, 0600, &listener, NULL) < 0)
        abort();
    pid = fork();
    if (pid != 0)
        return pid;
    for (size_t i = 0; i < n; i++) {
        int fd = accept(listener, NULL, NULL);

        scripts[i](fd);
        close(fd);
    }
    _exit(0);
}

static int reap(pid_t pid)
{
    int status = -1;

    waitpid(pid, &status, 0);
    return status;
}

struct seen {
    struct buf out[3];
    char gaps[128];
    char end[128];
    char exec[32];
};

static void on_started(void *u, const char *sandbox, const char *exec)
{
    struct seen *s = u;

    (void)sandbox;
    snprintf(s->exec, sizeof(s->exec), "%s", exec);
}

static void on_output(void *u, int stream, uint64_t offset, const void *data, size_t len)
{
    struct seen *s = u;

    (void)offset;
    if (buf_append(&s->out[stream], data, len) < 0)
        abort();
}

static void on_gap(void *u, int stream, uint64_t from, uint64_t to)
{
    struct seen *s = u;
    size_t used = strlen(s->gaps);

    snprintf(s->gaps + used, sizeof(s->gaps) - used, "%d:%d-%d ", stream, (int)from, (int)to);
}

static void on_end(void *u, const char *record)
{
    struct seen *s = u;

    snprintf(s->end, sizeof(s->end), "%s", record);
}

static const struct ripcord_exec_events events = {on_started, on_output, on_gap, on_end};

TEST(resumes_without_gap_or_repeat)
{
    static void (*const scripts[])(int) = {serve_first, serve_second};
    struct seen s = {.out = {BUF_INIT(4096), BUF_INIT(4096), BUF_INIT(4096)}};
    struct ripcord_exec *x = NULL;
    struct ripcord *r = NULL;
    pid_t server;
    int status = 1;

    server = serve(scripts, 2);
    CHECK(ripcord_open(root, &r, NULL) == 0);
    CHECK(ripcord_exec_start(r, "/v1/sandboxes/box/execs", "{\"argv\":[\"x\"]}", &x, NULL) == 0);
    while (status == 1)
        status = ripcord_exec_step(x, 5000, &events, &s, NULL);
    CHECK(status == 0);
    CHECK_STR(s.exec, "x1");
    CHECK_STR(buf_data(&s.out[1]), "hello world");
    CHECK_STR(buf_data(&s.out[2]), "oopslaterunannounced");
    CHECK_STR(s.gaps, "2:4-10 2:15-20 ");
    CHECK_STR(s.end, "{\"cause\":\"exited\",\"status\":7}");
    CHECK(reap(server) == 0);
    ripcord_exec_free(x);
    ripcord_close(r);
    for (int i = 0; i < 3; i++)
        buf_done(&s.out[i]);
}

/* poll(2) refuses more descriptors than RLIMIT_NOFILE allows. */
TEST(a_wait_that_fails_is_an_error)
{
    static void (*const scripts[])(int) = {serve_started};
    struct seen s = {.out = {BUF_INIT(4096), BUF_INIT(4096), BUF_INIT(4096)}};
    struct ripcord_error *e = NULL;
    struct ripcord_exec *x = NULL;
    struct ripcord *r = NULL;
    struct rlimit old, none;
    pid_t server = serve(scripts, 1);

    CHECK(ripcord_open(root, &r, NULL) == 0);
    CHECK(ripcord_exec_start(r, "/v1/sandboxes/box/execs", "{\"argv\":[\"x\"]}", &x, NULL) == 0);
    while (!*s.exec)
        CHECK(ripcord_exec_step(x, 100, &events, &s, NULL) == 1);
    CHECK(ripcord_exec_step(x, 0, &events, &s, NULL) == 1);
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(ripcord_exec_step(x, 0, &events, &s, &e) < 0);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    if (e)
        CHECK_STR(ripcord_error_code(e), "system");
    ripcord_error_free(e);
    ripcord_exec_free(x);
    ripcord_close(r);
    CHECK(reap(server) == 0);
    for (int i = 0; i < 3; i++)
        buf_done(&s.out[i]);
}

TEST(the_daemons_error_is_complete)
{
    static void (*const scripts[])(int) = {serve_error};
    struct ripcord_error *e = NULL;
    struct ripcord *r = NULL;
    pid_t server = serve(scripts, 1);

    CHECK(ripcord_open(root, &r, NULL) == 0);
    CHECK(ripcord_request(r, "GET", "/v1/sandboxes/x", NULL, NULL, &e) < 0);
    CHECK_STR(ripcord_error_code(e), "not_found");
    CHECK_STR(ripcord_error_message(e), "no sandbox 'x'");
    CHECK_STR(ripcord_error_hint(e), "Make it.");
    ripcord_error_free(e);
    ripcord_close(r);
    CHECK(reap(server) == 0);
}

/* A connection that was not accepted counts as one whose request was not read. */
TEST(a_request_that_was_not_read_is_sent_again)
{
    static void (*const scripts[])(int) = {serve_deaf, serve_error};
    static const char *const methods[] = {"POST", "DELETE", "GET"};

    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        struct ripcord_error *e = NULL;
        struct ripcord *r = NULL;
        pid_t server = serve(scripts, 2);

        CHECK(ripcord_open(root, &r, NULL) == 0);
        CHECK(ripcord_request(r, methods[i], "/v1/sandboxes/x", NULL, NULL, &e) < 0);
        CHECK_STR(ripcord_error_code(e), "not_found");
        ripcord_error_free(e);
        ripcord_close(r);
        CHECK(reap(server) == 0);
    }
}

TEST(a_request_that_may_have_had_effect_is_not_sent_again)
{
    static void (*const scripts[])(int) = {serve_mute, serve_error};
    struct ripcord_error *e = NULL;
    struct ripcord *r = NULL;
    pid_t server = serve(scripts, 2);

    CHECK(ripcord_open(root, &r, NULL) == 0);
    CHECK(ripcord_request(r, "POST", "/v1/sandboxes/x", NULL, NULL, &e) < 0);
    CHECK_STR(ripcord_error_code(e), "system");
    CHECK(strstr(ripcord_error_hint(e), "may or may not have been carried out"));
    ripcord_error_free(e);
    e = NULL;
    CHECK(ripcord_request(r, "POST", "/v1/sandboxes/x", NULL, NULL, &e) < 0);
    CHECK_STR(ripcord_error_code(e), "not_found"); /* the answer of the second script */
    ripcord_error_free(e);
    ripcord_close(r);
    CHECK(reap(server) == 0);
}

TEST(a_body_that_is_not_json_is_refused_here)
{
    struct ripcord_error *e = NULL;
    struct ripcord *r = NULL;

    CHECK(ripcord_open(root, &r, NULL) == 0);
    CHECK(ripcord_request(r, "PUT", "/v1/sandboxes/x", "{", NULL, &e) < 0);
    CHECK_STR(ripcord_error_code(e), "invalid");
    ripcord_error_free(e);
    ripcord_close(r);
}

TEST(no_daemon_program_is_an_error_with_a_hint)
{
    struct ripcord_error *e = NULL;
    struct ripcord *r = NULL;

    if (access("/usr/local/libexec/ripcord/ripcordd", X_OK) == 0)
        SKIP("ripcord is installed here");
    CHECK(ripcord_open(root, &r, NULL) == 0);
    CHECK(ripcord_request(r, "GET", "/v1/version", NULL, NULL, &e) < 0);
    CHECK(strstr(ripcord_error_message(e), "ripcordd"));
    CHECK(ripcord_error_hint(e) != NULL);
    ripcord_error_free(e);
    ripcord_close(r);
}

__attribute__((constructor)) static void make_root(void)
{
    if (!mkdtemp(root))
        abort();
}

__attribute__((destructor)) static void clean_up(void)
{
    static const char *const names[] = {"run/ripcord.sock", "run/start.lock", "run", "state", ""};
    char path[256];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        remove(path);
    }
}
