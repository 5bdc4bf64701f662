/* The handover: round trips, limits, and invalid bytes. */
#include "proto/handover.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "large-command.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "proto/supervisor.h"
#include "tap.h"

static int make(const void *input, size_t input_len, const struct handover_secret *secrets,
                size_t n_secrets, int *ret)
{
    const struct handover_parts p = {
        .input = input, .input_len = input_len, .secrets = secrets, .n_secrets = n_secrets};

    return handover_make(&p, ret, NULL);
}

TEST(there_and_back)
{
    const struct handover_secret in[] = {
        {.name = "KEY", .value = "a\0b", .len = 3, .target = "/a/b", .has_owner = true, .uid = 7},
        {.name = "empty.pem", .value = ""},
        {.name = "mode", .value = "", .has_mode = true, .mode = 0440}};
    struct handover h = {0};
    int fd = -1;

    CHECK(make("hello\n", 6, in, 3, &fd) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0);
    CHECK(h.input_len == 6 && memcmp(h.input, "hello\n", 6) == 0);
    CHECK(h.n_secrets == 3);
    CHECK_STR(h.secrets[0].target, "/a/b");
    CHECK(h.secrets[0].has_owner && h.secrets[0].uid == 7 && !h.secrets[0].has_mode);
    CHECK(!h.secrets[1].target && !h.secrets[1].has_owner && !h.secrets[1].has_mode);
    CHECK(!h.secrets[2].target && h.secrets[2].has_mode && h.secrets[2].mode == 0440);
    CHECK_STR(h.secrets[0].name, "KEY");
    CHECK(h.secrets[0].len == 3 && memcmp(h.secrets[0].value, "a\0b", 3) == 0);
    CHECK_STR(h.secrets[1].name, "empty.pem");
    CHECK(h.secrets[1].len == 0);
    handover_done(&h);
    CHECK(!h.map && !h.n_secrets);
    close(fd);
}

TEST(an_empty_input_differs_from_a_missing_one)
{
    const struct handover_secret in[] = {{.name = "KEY", .value = "v", .len = 1}};
    struct handover h = {0};
    int fd = -1;

    CHECK(make("", 0, NULL, 0, &fd) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0 && h.input && h.input_len == 0);
    handover_done(&h);
    close(fd);
    CHECK(make(NULL, 0, in, 1, &fd) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0 && !h.input && h.n_secrets == 1);
    handover_done(&h);
    close(fd);
}

TEST(limits)
{
    struct handover_secret many[HANDOVER_SECRETS_MAX + 1];
    _cleanup_free_ char *big = xcalloc(1, HANDOVER_INPUT_MAX + 1);
    struct handover h = {0};
    int fd = -1;

    for (size_t i = 0; i < ARRAY_SIZE(many); i++)
        many[i] = (struct handover_secret){.name = "K", .value = "v", .len = 1};
    CHECK(make(NULL, 0, many, ARRAY_SIZE(many), &fd) == -ERR_LIMIT);
    many[0] = (struct handover_secret){.name = "K", .value = big, .len = HANDOVER_SECRETS_SIZE};
    CHECK(make(NULL, 0, many, 1, &fd) == -ERR_LIMIT);
    CHECK(make(big, HANDOVER_INPUT_MAX + 1, NULL, 0, &fd) == -ERR_LIMIT);
    CHECK(fd == -1);
    many[0].len -= 2;
    CHECK(make(big, HANDOVER_INPUT_MAX, many, 1, &fd) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0 && h.input_len == HANDOVER_INPUT_MAX);
    handover_done(&h);
    close(fd);
}

static int make_command(char **argv, char **env, int *ret)
{
    const struct handover_parts p = {.argv = argv, .env = env};

    return handover_make(&p, ret, NULL);
}

TEST(a_command_there_and_back)
{
    char *argv[] = {(char *)"sh", (char *)"", (char *)"-c", NULL}, *env[] = {(char *)"A=1", NULL};
    const struct handover_secret secret = {.name = "KEY", .value = "v", .len = 1};
    const struct handover_parts p = {.input = "in",
                                     .input_len = 2,
                                     .secrets = &secret,
                                     .n_secrets = 1,
                                     .argv = argv,
                                     .env = env};
    struct handover h = {0};
    int fd = -1;

    CHECK(handover_make(&p, &fd, NULL) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0);
    CHECK(strv_equal(h.argv, argv) && strv_equal(h.env, env));
    CHECK(h.n_argv == 3 && h.n_env == 1 && h.n_secrets == 1 && h.input_len == 2);
    handover_done(&h);
    CHECK(!h.argv && !h.env && !h.n_argv);
    close(fd);
    CHECK(make("", 0, NULL, 0, &fd) == 0 && handover_read(fd, &h, NULL) == 0);
    CHECK(!h.argv && !h.env); /* none was given */
    handover_done(&h);
    close(fd);
}

TEST(the_largest_command_and_one_byte_more)
{
    _cleanup_strv_ char **argv = large_command(COMMAND_MAX / 2, false);
    _cleanup_strv_ char **env = large_command(COMMAND_MAX / 2, true);
    _cleanup_strv_ char **more = large_command(COMMAND_MAX / 2 + 1, false);
    struct handover h = {0};
    int fd = -1;

    CHECK(make_command(more, env, &fd) == -ERR_LIMIT && fd == -1);
    CHECK(make_command(argv, env, &fd) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0);
    CHECK(strv_equal(h.argv, argv) && strv_equal(h.env, env));
    handover_done(&h);
    close(fd);
}

TEST(the_longest_argument_and_one_byte_more)
{
    _cleanup_free_ char *longest = large_string("", COMMAND_STRING_MAX - 1);
    _cleanup_free_ char *longer = large_string("A=", COMMAND_STRING_MAX);
    char *argv[] = {longest, NULL}, *over[] = {longer, NULL};
    int fd = -1;

    CHECK(make_command(over, NULL, &fd) == -ERR_LIMIT);
    CHECK(make_command(NULL, over, &fd) == -ERR_LIMIT && fd == -1);
    CHECK(make_command(argv, NULL, &fd) == 0);
    close(fd);
}

TEST(as_many_arguments_as_fit_and_one_more)
{
    char **argv = xcalloc(COMMAND_STRINGS_MAX + 2, sizeof(char *));
    struct handover h = {0};
    int fd = -1;

    for (int i = 0; i <= COMMAND_STRINGS_MAX; i++)
        argv[i] = (char *)"";
    CHECK(make_command(argv, NULL, &fd) == -ERR_LIMIT && fd == -1);
    argv[COMMAND_STRINGS_MAX] = NULL;
    CHECK(make_command(argv, NULL, &fd) == 0);
    CHECK(handover_read(fd, &h, NULL) == 0 && h.n_argv == COMMAND_STRINGS_MAX);
    CHECK(!h.argv[COMMAND_STRINGS_MAX]);
    handover_done(&h);
    close(fd);
    free(argv);
}

static int refused(const void *data, size_t len)
{
    struct handover h = {0};
    int fd = -1, r;

    if (memfd_sealed("test", data, len, &fd, NULL) < 0)
        return 0;
    r = handover_read(fd, &h, NULL);
    handover_done(&h);
    close(fd);
    return r;
}

static int refused_field(uint16_t tag, const char *value, size_t len, int times)
{
    struct sup_writer w = {.buf = BUF_INIT(2 * SUP_COMMAND_MAX)};
    int r;

    for (int i = 0; i < times; i++)
        sup_put_bytes(&w, tag, value, len);
    r = refused(buf_data(&w.buf), w.buf.len);
    sup_writer_done(&w);
    return r;
}

static int refused_place(bool behind_secret, uint32_t mode, const char *target, size_t len)
{
    struct sup_writer w = {.buf = BUF_INIT(1 << 10)};
    const uint32_t numbers[] = {1, 1, 0, 0, mode};
    char place[100];
    int r;

    memcpy(place, numbers, sizeof(numbers));
    memcpy(place + sizeof(numbers), target, len);
    if (behind_secret)
        sup_put_bytes(&w, SUP_TAG_SECRET, "K\0v", 3);
    sup_put_bytes(&w, SUP_TAG_SECRET_PLACE, place, sizeof(numbers) + len);
    r = refused(buf_data(&w.buf), w.buf.len);
    sup_writer_done(&w);
    return r;
}

TEST(places_that_are_refused)
{
    CHECK(refused_place(true, 0400, "/a", 3) == 0);
    CHECK(refused_place(true, 0400, "", 1) == 0);
    CHECK(refused_place(false, 0400, "/a", 3) == -ERR_INVALID);
    CHECK(refused_place(true, 04755, "/a", 3) == -ERR_INVALID);
    CHECK(refused_place(true, 0400, "a", 2) == -ERR_INVALID);
    CHECK(refused_place(true, 0400, "/a", 2) == -ERR_INVALID);
    CHECK(refused_place(true, 0400, "/a\0b", 5) == -ERR_INVALID);
    CHECK(refused_place(true, 0400, "", 0) == -ERR_INVALID);
}

TEST(bytes_that_are_refused)
{
    CHECK(refused("", 0) == -ERR_LIMIT);
    CHECK(refused("x", 1) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_INPUT, "x", 1, 1) == 0);
    CHECK(refused_field(SUP_TAG_INPUT, "x", 1, 2) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_CWD, "/", 1, 1) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_SECRET, "K\0v", 3, HANDOVER_SECRETS_MAX) == 0);
    CHECK(refused_field(SUP_TAG_SECRET, "K\0v", 3, HANDOVER_SECRETS_MAX + 1) == -ERR_LIMIT);
    CHECK(refused_field(SUP_TAG_SECRET, "K", 1, 1) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_SECRET, "\0v", 2, 1) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_SECRET, "../k\0v", 6, 1) == -ERR_INVALID);
}

TEST(commands_that_are_refused)
{
    _cleanup_free_ char *longer = large_string("A=", COMMAND_STRING_MAX);
    const uint16_t tags[] = {SUP_TAG_ARG, SUP_TAG_ENV};

    CHECK(refused_field(SUP_TAG_ARG, "x", 1, 1) == 0);
    CHECK(refused_field(SUP_TAG_ARG, "a\0b", 3, 1) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_ENV, "A", 1, 1) == -ERR_INVALID);
    CHECK(refused_field(SUP_TAG_ENV, "=A", 2, 1) == -ERR_INVALID);
    for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
        CHECK(refused_field(tags[i], longer, COMMAND_STRING_MAX - 1, 1) == 0);
        CHECK(refused_field(tags[i], longer, COMMAND_STRING_MAX, 1) == -ERR_LIMIT);
        CHECK(refused_field(tags[i], longer, COMMAND_STRING_MAX - 1, 16) == -ERR_LIMIT);
    }
    CHECK(refused_field(SUP_TAG_ARG, "", 0, COMMAND_STRINGS_MAX) == 0);
    CHECK(refused_field(SUP_TAG_ARG, "", 0, COMMAND_STRINGS_MAX + 1) == -ERR_LIMIT);
}

TEST(only_what_cannot_change_is_read)
{
    struct handover h = {0};
    int fd = memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING), pipes[2];

    CHECK(fd >= 0 && write(fd, "xxxxxxxx", 8) == 8);
    CHECK(handover_read(fd, &h, NULL) == -ERR_INVALID);
    close(fd);
    CHECK(pipe2(pipes, O_CLOEXEC) == 0);
    CHECK(handover_read(pipes[0], &h, NULL) == -ERR_INVALID);
    CHECK(handover_read(-1, &h, NULL) == -ERR_INVALID);
    close(pipes[0]);
    close(pipes[1]);
}
