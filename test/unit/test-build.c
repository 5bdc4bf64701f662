/* Image builds: daemon/engine/build.c on a builder of our own, the context's way to it, and what
 * the builders of Docker and Podman say. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "daemon/engine/docker/build-lines.h"
#include "daemon/engine/docker/build.h"
#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine.h"
#include "dockerapi/trace.h"
#include "fake-engine/fake.h"
#include "lib/base/base64.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"
#include "lib/os/rmtree.h"
#include "tap.h"

/* ---- a builder that does what a test says ---- */

typedef int (*script_fn)(const struct build_request *req, struct build *b, struct err *err);

static script_fn script;

static int scripted(struct engine *e _unused_, const struct build_request *req, struct build *b,
                    const struct deadline *by _unused_, char **ret, struct err *err)
{
    int r = script(req, b, err);

    if (r >= 0)
        *ret = xstrdup("{\"id\":\"sha256:1\",\"names\":[]}");
    return r;
}

struct bed {
    char dir[32];
    struct loop *loop;
    struct engine *engine;
    struct build *build;
    struct loop_timer *timer;
    int body; /* the pipe's write end */
    uint64_t logins;
    struct buf lines;
    unsigned dones;
    enum err_code code;
    char *message, *json;
    bool hold_first, cancel_first;
};

static struct engine_ops ops;

static void bed_init(struct bed *b, script_fn fn)
{
    struct engine_config config = {.root_id = "0000000000000001", .libexec_dir = "/nowhere"};

    signal(SIGPIPE, SIG_IGN); /* as the daemon does */
    script = fn;
    ops = engine_fake_ops;
    ops.build = fn ? scripted : NULL;
    *b = (struct bed){.dir = "/tmp/ripcord-build-XXXXXX", .body = -1, .lines = BUF_INIT(MIB(64))};
    if (!mkdtemp(b->dir) || loop_new(&b->loop, NULL) < 0)
        abort();
    config.state_dir = config.run_dir = b->dir;
    if (engine_open(b->loop, &ops, &config, &b->engine, NULL) < 0)
        abort();
}

static void bed_done(struct bed *b)
{
    loop_timer_free(b->timer);
    fd_close(b->body);
    engine_close(b->engine);
    fake_reset();
    loop_free(b->loop);
    rmtree(AT_FDCWD, b->dir, NULL);
    buf_done(&b->lines);
    free(b->message);
    free(b->json);
}

static void on_lines(void *arg, const char *text, size_t len)
{
    struct bed *b = arg;

    if (buf_append(&b->lines, text, len) < 0)
        abort();
    if (b->hold_first) {
        b->hold_first = false;
        build_hold(b->build, true);
        loop_stop(b->loop);
    }
    if (b->cancel_first)
        build_cancel(b->build);
}

static void on_done(void *arg, const struct err *err, const char *json)
{
    struct bed *b = arg;

    b->dones++;
    b->code = err ? err->code : ERR_NONE;
    b->message = err ? xstrdup(err->msg) : NULL;
    b->json = json ? xstrdup(json) : NULL;
    loop_stop(b->loop);
}

static int start(struct bed *b, uint64_t secrets, struct err *err)
{
    static const struct build_events events = {on_lines, on_done};
    struct build_request req = {.context = -1, .dockerfile = xstrdup("Dockerfile")};
    struct build_body body = {.dir = b->dir, .secrets = secrets, .logins = b->logins};
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        abort();
    body.fd = p[0];
    b->body = p[1];
    strv_add(&req.tags, "name:1");
    return engine_build(b->engine, &req, &body, &events, b, &b->build, err);
}

static void run(struct bed *b, const char *body, uint64_t secrets)
{
    if (start(b, secrets, NULL) < 0)
        abort();
    fd_write_all(b->body, body, strlen(body)); /* what is refused may not be read to its end */
    b->body = fd_close(b->body);
    loop_run(b->loop);
}

/* ---- the way of a build ---- */

static int script_all(const struct build_request *req, struct build *b, struct err *err)
{
    const struct build_step_info step = {
        .stage = "st", .n = 2, .of = 4, .text = "RUN \"x\"", .line = 7};
    char text[16] = "";
    unsigned id;

    if (read(req->context, text, sizeof(text) - 1) < 0 || strcmp(text, "tar") != 0 ||
        req->context_size != 3 || req->n_secrets != 1 || strcmp(req->secrets[0].id, "key") != 0 ||
        strcmp(req->secrets[0].value, "value") != 0 || strcmp(req->tags[0], "name:1") != 0)
        return err_set(err, ERR_SYSTEM, "the request is not what was asked for: '%s'", text);
    id = build_step_begin(b, &step);
    build_step_cached(b, id);
    build_step_progress(b, id, "layer", 1, 2);
    build_step_end(b, id, NULL);
    build_warning(b, "careful", 3);
    id = build_step_begin(b, &(struct build_step_info){.text = "COPY"});
    build_step_end(b, id, "no such file");
    return 0;
}

/* "ms":N differs from run to run. */
static char *without_ms(const char *s)
{
    char *out = xstrdup(s), *p;

    while ((p = strstr(out, ",\"ms\":")))
        memmove(p, p + 6 + strspn(p + 6, "0123456789"),
                strlen(p + 6 + strspn(p + 6, "0123456789")) + 1);
    return out;
}

TEST(events_of_a_build_come_in_order)
{
    _cleanup_free_ char *lines = NULL;
    struct bed b;

    bed_init(&b, script_all);
    run(&b, "{\"key\":\"value\"}tar", 15);
    lines = without_ms(buf_data(&b.lines));
    bed_done(&b);
    CHECK_STR(lines,
              "{\"event\":\"step\",\"step\":1,\"stage\":\"st\",\"n\":2,\"of\":4,"
              "\"text\":\"RUN \\\"x\\\"\",\"line\":7}\n"
              "{\"event\":\"cached\",\"step\":1}\n"
              "{\"event\":\"progress\",\"step\":1,\"what\":\"layer\",\"current\":1,\"total\":2}\n"
              "{\"event\":\"step_end\",\"step\":1}\n"
              "{\"event\":\"warning\",\"text\":\"careful\",\"line\":3}\n"
              "{\"event\":\"step\",\"step\":2,\"text\":\"COPY\"}\n"
              "{\"event\":\"step_end\",\"step\":2,\"error\":\"no such file\"}\n");
    CHECK(b.dones == 1 && b.code == ERR_NONE);
}

static int script_characters(const struct build_request *req _unused_, struct build *b,
                             struct err *err _unused_)
{
    unsigned id = build_step_begin(b, &(struct build_step_info){.text = "RUN"});

    build_step_output(b, id, BUILD_STDOUT, "a\xe2\x9c", 3);
    build_step_output(b, id, BUILD_STDOUT,
                      "\x93"
                      "b",
                      2);
    build_step_output(b, id, BUILD_STDERR, "\xff\xe2", 2);
    build_step_end(b, id, NULL);
    return 0;
}

TEST(a_character_that_comes_in_two_pieces_stays_whole)
{
    _cleanup_free_ char *lines = NULL;
    struct bed b;

    bed_init(&b, script_characters);
    run(&b, "", 0);
    lines = without_ms(buf_data(&b.lines));
    bed_done(&b);
    CHECK(strstr(lines, "\"data\":\"a\"") && strstr(lines, "\"data\":\"✓b\""));
    CHECK(strstr(lines, "\"stream\":\"stderr\",\"data\":\"\xef\xbf\xbd\""));
    CHECK(strstr(lines, "\"stream\":\"stdout\",\"data\":\"\xef\xbf\xbd\""));
}

enum { FLOOD = 200 };
static atomic_uint written;

static int script_flood(const struct build_request *req _unused_, struct build *b,
                        struct err *err _unused_)
{
    _cleanup_free_ char *piece = xmalloc(10000);
    unsigned id = build_step_begin(b, &(struct build_step_info){.text = "RUN"});

    memset(piece, 'x', 10000);
    for (unsigned i = 0; i < FLOOD; i++) {
        build_step_output(b, id, BUILD_STDOUT, piece, 10000);
        atomic_fetch_add(&written, 1);
    }
    return 0;
}

TEST(a_slow_reader_holds_the_build_back)
{
    unsigned held, seen = 0;
    struct bed b;

    atomic_store(&written, 0);
    bed_init(&b, script_flood);
    b.hold_first = true;
    run(&b, "", 0);
    usleep(100000);
    held = atomic_load(&written); /* what a pipe and one read take, whatever the time */
    build_hold(b.build, false);
    loop_run(b.loop);
    for (const char *p = buf_data(&b.lines); (p = strstr(p, "\"event\":\"output\"")); p++)
        seen++;
    bed_done(&b);
    CHECK(held < FLOOD / 4);
    CHECK(b.dones == 1 && b.code == ERR_NONE && seen == FLOOD);
}

static int script_wait(const struct build_request *req _unused_, struct build *b, struct err *err)
{
    uint64_t one;

    build_step_begin(b, &(struct build_step_info){.text = "RUN sleep"});
    while (read(build_stop_fd(b), &one, sizeof(one)) < 0)
        usleep(1000);
    return err_set(err, ERR_CONFLICT, "stopped");
}

TEST(a_cancelled_build_ends)
{
    struct bed b;

    bed_init(&b, script_wait);
    b.cancel_first = true;
    run(&b, "", 0);
    bed_done(&b);
    CHECK(b.dones == 1 && b.code == ERR_CONFLICT);
}

static int script_never(const struct build_request *req _unused_, struct build *b _unused_,
                        struct err *err)
{
    return err_set(err, ERR_SYSTEM, "begun");
}

TEST(a_truncated_body_builds_nothing)
{
    struct bed b;
    bool begun;

    bed_init(&b, script_never);
    CHECK(start(&b, 0, NULL) >= 0);
    fd_write_all(b.body, "half", 4);
    build_cancel(b.build);
    b.body = fd_close(b.body);
    loop_run(b.loop);
    begun = b.message && STREQ(b.message, "begun");
    bed_done(&b);
    CHECK(b.dones == 1 && b.code != ERR_NONE && !begun);
}

TEST(secrets_that_are_malformed_build_nothing)
{
    static const struct {
        const char *body;
        uint64_t secrets;
        enum err_code code;
    } cases[] = {
        {"{\"a\":1}", 7, ERR_INVALID}, {"{\"a\":", 5, ERR_INVALID},
        {"[]", 2, ERR_INVALID},        {"{", 100, ERR_INVALID},
        {"{}", 2 << 20, ERR_LIMIT},    {"{\"\":\"x\"}", 8, ERR_INVALID},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bed b;

        bed_init(&b, script_never);
        run(&b, cases[i].body, cases[i].secrets);
        bed_done(&b);
        CHECK(b.dones == 1 && b.code == cases[i].code);
    }
}

static int script_logins(const struct build_request *req, struct build *b, struct err *err)
{
    char text[16] = "";

    (void)b;
    if (req->n_secrets != 1 || req->n_logins != 1 || !STREQ(req->logins[0].registry, "r.io:5") ||
        !STREQ(req->logins[0].username, "u") || !STREQ(req->logins[0].password, "p") ||
        read(req->context, text, sizeof(text) - 1) != 3 || !STREQ(text, "tar"))
        return err_set(err, ERR_SYSTEM, "the request is not what was asked for");
    return 0;
}

TEST(logins_come_between_secrets_and_context)
{
    static const char secrets[] = "{\"k\":\"v\"}";
    static const char logins[] = "{\"r.io:5\":{\"username\":\"u\",\"password\":\"p\"}}";
    _cleanup_free_ char *body = xasprintf("%s%star", secrets, logins);
    struct bed b;

    bed_init(&b, script_logins);
    b.logins = strlen(logins);
    run(&b, body, strlen(secrets));
    bed_done(&b);
    CHECK(b.dones == 1 && b.code == ERR_NONE);
}

TEST(logins_that_are_malformed_build_nothing)
{
    static const struct {
        const char *body;
        uint64_t logins;
        enum err_code code;
    } cases[] = {
        {"{\"a\":1}", 7, ERR_INVALID},
        {"{\"a\":{}}", 8, ERR_INVALID},
        {"{\"a\":{\"username\":\"u\"}}", 24, ERR_INVALID},
        {"{\"\":{\"username\":\"u\",\"password\":\"p\"}}", 38, ERR_INVALID},
        {"{\"a\":{\"username\":\"u\",\"password\":\"p\",\"x\":1}}", 45, ERR_INVALID},
        {"[]", 2, ERR_INVALID},
        {"{", 100, ERR_INVALID},
        {"{}", 2 << 20, ERR_LIMIT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bed b;

        bed_init(&b, script_never);
        b.logins = cases[i].logins;
        run(&b, cases[i].body, 0);
        bed_done(&b);
        CHECK(b.dones == 1 && b.code == cases[i].code);
    }
}

TEST(an_engine_without_a_builder_says_so_at_once)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct bed b;
    int r;

    bed_init(&b, NULL);
    r = start(&b, 0, &err);
    bed_done(&b);
    CHECK(r == -ERR_UNSUPPORTED && strstr(err.hint, "--engine docker"));
    CHECK(b.dones == 0);
}

/* ---- base64 and the trace ---- */

TEST(base64_of_all_lengths_and_invalid_base64)
{
    static const char *const good[][2] = {
        {"", ""}, {"Zg==", "f"}, {"Zm8=", "fo"}, {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}};
    static const char *const bad[] = {"Z",    "Zg",   "Zg=",      "Zh==",     "Zm9=", "Zg==Zg==",
                                      "Z===", "====", "Zm9v\nYg", "Zm9vZg= ", "-_-_"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);
        _cleanup_free_ char *back = base64_encode(good[i][1], strlen(good[i][1]));

        CHECK_STR(back, good[i][0]);
        CHECK(base64_decode(&b, good[i][0], strlen(good[i][0]), NULL) == 0);
        CHECK(b.len == strlen(good[i][1]) && memcmp(buf_data(&b), good[i][1], b.len) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(64);

        CHECK(base64_decode(&b, bad[i], strlen(bad[i]), NULL) == -ERR_INVALID);
    }
}

static void ignore_vertex(void *arg, const struct trace_vertex *v _unused_)
{
    ++*(unsigned *)arg;
}
static void ignore_status(void *arg _unused_, const struct trace_status *s _unused_)
{
}
static void ignore_log(void *arg _unused_, const struct trace_log *l _unused_)
{
}
static void ignore_warning(void *arg _unused_, struct trace_text t _unused_)
{
}

TEST(a_trace_that_is_malformed_is_refused)
{
    static const struct trace_events events = {ignore_vertex, ignore_status, ignore_log,
                                               ignore_warning};
    static const struct {
        const char *bytes;
        size_t len;
        int r;
        unsigned vertices;
    } cases[] = {
        {"", 0, 0, 0},
        {"\x0a\x02\x20\x01", 4, 0, 1},           /* a vertex, cached */
        {"\x0a\x00\x48\x05", 4, 0, 1},           /* an empty one, and a field that is not known */
        {"\x0a\x05\x20\x01", 4, -ERR_ENGINE, 0}, /* longer than what there is */
        {"\x0a\x02\x20\x81", 4, -ERR_ENGINE, 0}, /* a number without its end */
        {"\x0a\x00\x0b", 3, -ERR_ENGINE, 1},     /* a group */
        {"\x00\x00", 2, -ERR_ENGINE, 0},         /* field 0 */
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, -ERR_ENGINE, 0}, /* over 64 bits */
        {"\x09\x01\x02", 3, -ERR_ENGINE, 0}, /* eight bytes, and there are two */
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned vertices = 0;

        CHECK(trace_decode(cases[i].bytes, cases[i].len, &events, &vertices, NULL) == cases[i].r);
        CHECK(vertices == cases[i].vertices);
    }
}

/* ---- what BuildKit says ---- */

/* One field of bytes below 128. */
static void put(struct buf *b, unsigned field, const void *data, size_t len)
{
    if (buf_append(b, (const char[]){(char)(field << 3 | 2), (char)len}, 2) < 0 ||
        buf_append(b, data, len) < 0)
        abort();
}

static char *encode(const struct buf *b)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)buf_data(b);
    struct buf out = BUF_INIT(4096);

    for (size_t i = 0; i < b->len; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < b->len ? p[i + 1] : 0U) << 8 |
                     (i + 2 < b->len ? p[i + 2] : 0U);
        char four[] = {set[v >> 18], set[v >> 12 & 63], i + 1 < b->len ? set[v >> 6 & 63] : '=',
                       i + 2 < b->len ? set[v & 63] : '='};

        if (buf_append(&out, four, 4) < 0)
            abort();
    }
    return buf_steal(&out);
}

static int take(struct buildkit *k, unsigned field, const struct buf *part, struct err *err)
{
    _cleanup_buf_ struct buf all = BUF_INIT(4096);
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *line = NULL;

    put(&all, field, buf_data(part), part->len);
    text = encode(&all);
    line = json_pack("{ss}", "aux", text);
    return buildkit_take(k, line, err);
}

/* How far: 0 announced, 1 started, 2 done, 3 done by the cache; error NULL: none. */
static void vertex(struct buildkit *k, const char *digest, const char *name, int how,
                   const char *error)
{
    _cleanup_buf_ struct buf v = BUF_INIT(512);

    put(&v, 1, digest, strlen(digest));
    put(&v, 3, name, strlen(name));
    if (how == 3 && buf_append(&v, "\x20\x01", 2) < 0)
        abort();
    if (how >= 1)
        put(&v, 5, "", 0);
    if (how >= 2)
        put(&v, 6, "", 0);
    if (error)
        put(&v, 7, error, strlen(error));
    take(k, 1, &v, NULL);
}

static int script_buildkit(const struct build_request *req _unused_, struct build *b,
                           struct err *err)
{
    _cleanup_buf_ struct buf log = BUF_INIT(512);
    _cleanup_json_ json_t *wrong = json_pack("{ss}", "aux", "!!");
    struct buildkit *k = buildkit_new(b, NULL);
    int r;

    vertex(k, "a", "[internal] load", 2, NULL);
    vertex(k, "b", "[base 1/2] FROM x", 0, NULL);
    vertex(k, "b", "[base 1/2] FROM x", 3, NULL);
    vertex(k, "b", "[base 1/2] FROM x", 3, NULL); /* once more: nothing */
    vertex(k, "c", "[2/3] RUN [x/y] z", 1, NULL);
    put(&log, 1, "c", 1);
    if (buf_append(&log, "\x18\x02", 2) < 0)
        abort();
    put(&log, 4, "out\n", 4);
    take(k, 3, &log, NULL);
    vertex(k, "c", "[2/3] RUN [x/y] z", 2, "exit code: 3");
    vertex(k, "d", "exporting", 2, NULL);
    r = buildkit_take(k, wrong, err);
    buildkit_free(k);
    return r;
}

TEST(vertices_of_buildkit_become_steps)
{
    _cleanup_free_ char *lines = NULL;
    struct bed b;

    bed_init(&b, script_buildkit);
    run(&b, "", 0);
    lines = without_ms(buf_data(&b.lines));
    bed_done(&b);
    CHECK_STR(lines,
              "{\"event\":\"step\",\"step\":1,\"stage\":\"internal\",\"text\":\"load\"}\n"
              "{\"event\":\"step_end\",\"step\":1}\n"
              "{\"event\":\"step\",\"step\":2,\"stage\":\"base\",\"n\":1,\"of\":2,"
              "\"text\":\"FROM x\"}\n"
              "{\"event\":\"cached\",\"step\":2}\n"
              "{\"event\":\"step_end\",\"step\":2}\n"
              "{\"event\":\"step\",\"step\":3,\"n\":2,\"of\":3,\"text\":\"RUN [x/y] z\"}\n"
              "{\"event\":\"output\",\"step\":3,\"stream\":\"stderr\",\"data\":\"out\\u000a\"}\n"
              "{\"event\":\"step_end\",\"step\":3,\"error\":\"exit code: 3\"}\n"
              "{\"event\":\"step\",\"step\":4,\"text\":\"exporting\"}\n"
              "{\"event\":\"step_end\",\"step\":4}\n");
    CHECK(b.code == ERR_ENGINE); /* the line that was no base64 */
}

/* ---- what Podman says ---- */

static int script_podman(const struct build_request *req _unused_, struct build *b,
                         struct err *err _unused_)
{
    static const char *const said[] = {
        "[1/2] STEP 1/2: FROM x\n",
        "[1/2] STEP 2/2: RUN echo\n",
        "--> Using cache 0123abcd\n",
        "--> 0123abcd\n",
        "[2/2] STEP 1/2: FROM y\n",
        "[2/2] STEP 2/2: RUN evil\n",
        "[2/2] STEP 2/2: RUN again\n", /* written by the command itself */
        "STEP 9/9: RUN more\n",
        "--> Using cache 0123\n",
        "two\nlines\n",
    };
    struct podman_log *p = podman_log_new(b, NULL);

    for (size_t i = 0; i < ARRAY_SIZE(said); i++)
        podman_log_take(p, said[i], strlen(said[i]));
    podman_log_end(p, "exit status 3");
    podman_log_free(p);
    return 0;
}

TEST(headings_of_podman_become_steps_and_fakes_do_not)
{
    _cleanup_free_ char *lines = NULL;
    struct bed b;

    bed_init(&b, script_podman);
    run(&b, "", 0);
    lines = without_ms(buf_data(&b.lines));
    bed_done(&b);
    CHECK(strstr(lines, "\"step\":1,\"stage\":\"stage-0\",\"n\":1,\"of\":2,\"text\":\"FROM x\""));
    CHECK(
        strstr(lines, "{\"event\":\"cached\",\"step\":2}\n{\"event\":\"step_end\",\"step\":2}\n"));
    CHECK(strstr(lines, "\"step\":4,\"stage\":\"stage-1\",\"n\":2,\"of\":2,\"text\":\"RUN evil\""));
    CHECK(strstr(lines, "\"data\":\"[2/2] STEP 2/2: RUN again\\u000a\""));
    CHECK(strstr(lines, "\"data\":\"STEP 9/9: RUN more\\u000a\""));
    CHECK(!strstr(lines, "\"cached\",\"step\":4") && !strstr(lines, "\"step\":5"));
    CHECK(strstr(lines, "{\"event\":\"step_end\",\"step\":4,\"error\":\"exit status 3\"}\n"));
}

/* ---- lines ---- */

static const char dockerfile[] = "ARG V=1\n"
                                 "FROM a AS base\n"
                                 "ENV X=1\n"
                                 "RUN one \\\n"
                                 "  more\n"
                                 "FROM base\n"
                                 "WORKDIR /w\n"
                                 "COPY . .\n"
                                 "CMD x\n";

static int write_fd(void *arg, const void *data, size_t len)
{
    return fd_write_all(*(int *)arg, data, len);
}

static struct build_lines *lines_of(const char *path, const char *text)
{
    _cleanup_close_ int fd = memfd_create("context", MFD_CLOEXEC);
    struct build_request req = {.context = fd, .dockerfile = (char *)"./d/Dockerfile"};
    struct tar_entry e = {.type = TAR_FILE, .mode = 0644, .size = strlen(text)};
    struct build_lines *l;
    struct tar_writer w;

    tar_writer_init(&w, write_fd, &fd);
    snprintf(e.path, sizeof(e.path), "%s", path);
    if (tar_put(&w, &e, NULL) < 0 || tar_write(&w, text, strlen(text), NULL) < 0 ||
        tar_finish(&w, NULL) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        abort();
    l = build_lines_new(&req);
    if (lseek(fd, 0, SEEK_CUR) != 0)
        abort();
    return l;
}

TEST(a_step_has_its_line)
{
    _cleanup_(build_lines_freep) struct build_lines *l = lines_of("d/Dockerfile", dockerfile);

    CHECK(l);
    CHECK(build_lines_find(l, "base", 1, 2, false) == 2);
    CHECK(build_lines_find(l, "base", 2, 2, false) == 4);
    CHECK(build_lines_find(l, "stage-1", 1, 2, false) == 7);
    CHECK(build_lines_find(l, "stage-1", 2, 2, false) == 8);
    CHECK(build_lines_find(l, "", 2, 2, false) == 8);
    CHECK(build_lines_find(l, "stage-0", 3, 3, true) == 4);
    CHECK(build_lines_find(l, "stage-1", 4, 4, true) == 9);
    CHECK(build_lines_find(l, "stage-1", 2, 5, false) == 0); /* the engine counts other steps */
    CHECK(build_lines_find(l, "other", 1, 2, false) == 0);
    CHECK(build_lines_find(l, "stage-9", 1, 2, false) == 0);
    CHECK(build_lines_find(NULL, "", 1, 1, false) == 0);
}

TEST(without_a_dockerfile_there_are_no_lines)
{
    CHECK(!lines_of("Dockerfile", dockerfile));
    CHECK(!lines_of("d/Dockerfile", "RUNN x\n"));
}
