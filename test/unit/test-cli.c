/* The command line: tables, parser, specs, and the display of output and end records. */
#include <string.h>

#include "cli/docker-auth.h"
#include "cli/end.h"
#include "cli/output.h"
#include "cli/render.h"
#include "cli/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static int parse(const struct cli_command *cmd, char **argv, struct cli_args *a, struct err *err)
{
    int n = 0;

    while (argv[n])
        n++;
    return args_parse(cmd, n, argv, a, err);
}
#define ARGV(...)                                                                                  \
    (char *[])                                                                                     \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

TEST(long_options_take_values_both_ways)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;

    CHECK(parse(&cmd_up, ARGV("--memory", "1G", "box", "--cpus=0.5", "--json"), &a, NULL) == 0);
    CHECK_STR(args_get(&a, "memory"), "1G");
    CHECK_STR(args_get(&a, "cpus"), "0.5");
    CHECK(args_has(&a, "json"));
    CHECK(!args_has(&a, "pids"));
    CHECK(a.n_words == 1);
    CHECK_STR(a.words[0], "box");
}

TEST(short_options_cluster)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;

    CHECK(parse(&cmd_run, ARGV("-it", "-eA=1", "-e", "B=2", "sh", "-c", "x"), &a, NULL) == 0);
    CHECK(args_has(&a, "interactive") && args_has(&a, "tty"));
    CHECK_STR(args_get(&a, "env"), "B=2");
    CHECK(a.n_words == 3);
    CHECK_STR(a.words[1], "-c");
}

TEST(the_command_keeps_its_options)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT, b = CLI_ARGS_INIT, c = CLI_ARGS_INIT;

    CHECK(parse(&cmd_exec, ARGV("box", "--timeout", "5s", "ls", "--json", "-t"), &a, NULL) == 0);
    CHECK(a.n_words == 4 && !args_has(&a, "json") && !args_has(&a, "tty"));
    CHECK(parse(&cmd_exec, ARGV("box", "--", "--timeout"), &b, NULL) == 0);
    CHECK(b.n_words == 2 && !args_has(&b, "timeout"));
    CHECK(parse(&cmd_exec, ARGV("-i", "box", "-t", "--", "--", "x"), &c, NULL) == 0);
    CHECK(c.n_words == 3 && args_has(&c, "tty"));
    CHECK_STR(c.words[1], "--");
}

TEST(typos_get_the_nearest_option)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;

    CHECK(parse(&cmd_run, ARGV("--memroy", "1G", "ls"), &a, &err) == -ERR_INVALID);
    CHECK(strstr(err.msg, "'--memroy'") && strstr(err.hint, "'--memory'"));
    err_done(&err);
    CHECK(cli_unknown_command("exce", &err) == -ERR_INVALID);
    CHECK(strstr(err.hint, "'ripcord exec'"));
}

TEST(wrong_counts_and_values_are_refused)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(parse(&cmd_up, ARGV("--memory"), &a, &err) == -ERR_INVALID);
    CHECK(parse(&cmd_up, ARGV("--json=yes", "x"), &a, &err) == -ERR_INVALID);
    CHECK(parse(&cmd_up, ARGV("a", "b"), &a, &err) == -ERR_INVALID);
    CHECK(parse(&cmd_exec, ARGV("a"), &a, &err) == -ERR_INVALID);
    CHECK(parse(&cmd_exec, ARGV("-x"), &a, &err) == -ERR_INVALID);
    CHECK(parse(&cmd_exec, ARGV("--help"), &a, &err) == 0);
}

TEST(every_command_is_complete)
{
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        const struct cli_option *o, *other;

        CHECK((*c)->name && (*c)->summary && (*c)->usage && (*c)->run);
        CHECK(strncmp((*c)->usage, (*c)->name, strlen((*c)->name)) == 0);
        CHECK(cli_find_command((*c)->name) == *c);
        CHECK((*c)->max_args >= (*c)->min_args);
        for (size_t i = 0; (o = cli_option_at(*c, i)); i++) {
            CHECK(o->help && *o->help);
            for (size_t k = 0; k < i && (other = cli_option_at(*c, k)); k++)
                CHECK(!STREQ(o->name, other->name) && (!o->letter || o->letter != other->letter));
        }
    }
}

static char *spec_text(char **argv, struct err *err)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;
    _cleanup_json_ json_t *doc = NULL;

    if (parse(&cmd_up, argv, &a, err) < 0 || spec_from_args(&a, true, &doc, err) < 0)
        return NULL;
    return json_to_text(doc, true);
}

TEST(spec_has_only_the_given_options)
{
    _cleanup_free_ char *none = spec_text(ARGV("b"), NULL);
    _cleanup_free_ char *some =
        spec_text(ARGV("b", "--memory", "512M", "--cpus", "0.5", "--env", "A=1=2", "--label",
                       "k=", "--mount", "/:/x:ro", "--tmpfs", "tmp=1M", "--idle-stop", "30m"),
                  NULL);

    CHECK_STR(none, "{}");
    CHECK_STR(some,
              "{\"env\":{\"A\":\"1=2\"},\"idle_stop_ms\":1800000,\"labels\":{\"k\":\"\"},"
              "\"limits\":{\"cpus\":0.5,\"memory\":536870912},\"mounts\":[{\"read_only\":true,"
              "\"source\":\"/\",\"target\":\"/x\"}],\"tmpfs\":{\"tmp\":1048576}}");
}

TEST(spec_refuses_invalid_values)
{
    static char *const bad[][2] = {
        {"--memory", "12X"},    {"--memory", "0"},          {"--cpus", "-1"},
        {"--pids", "0"},        {"--env", "1A=x"},          {"--env", "=x"},
        {"--label", "=x"},      {"--mount", "/x"},          {"--mount", "/:y"},
        {"--mount", "/:/y:rx"}, {"--mount", "/no/such:/y"}, {"--user", "4294967296"},
        {"--user", "a b"},      {"--workdir", "rel"},       {"--network", "opne"},
        {"--engine", "dokcer"}, {"--tmpfs", "x=1M"},        {"--tmpfs", "tmp"},
        {"--image", ""},        {"--idle-stop", "soon"},    {"--label", "k=\xff"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        char *text = spec_text(ARGV("b", bad[i][0], bad[i][1]), &err);

        if (text)
            printf("# accepted %s %s\n", bad[i][0], bad[i][1]);
        CHECK(!text && err.code == ERR_INVALID);
        if (bad[i][1][0] && !strchr(bad[i][1], '\xff'))
            CHECK(strstr(err.msg, bad[i][0]));
    }
}

TEST(range_errors_name_the_option)
{
    static const char *const cases[][3] = {
        {"--memory", "1", "--memory must be between 6 MiB and 1 PiB"},
        {"--pids", "1", "--pids must be between 2 and 4194304"},
        {"--pids", "x", "--pids: 'x' is not a whole number"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_err_ struct err err = ERR_INIT;

        CHECK(!spec_text((char *[]){"box", (char *)cases[i][0], (char *)cases[i][1], NULL}, &err));
        CHECK_STR(err.msg, cases[i][2]);
    }
}

TEST(exec_spec)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;

    CHECK(parse(&cmd_exec, ARGV("b", "-i", "--timeout", "1.5s", "-u", "0", "ls", "-l"), &a, NULL) ==
          0);
    CHECK(exec_spec_from_args(&a, a.words + 1, &doc, NULL) == 0);
    text = json_to_text(doc, true);
    CHECK_STR(text, "{\"argv\":[\"ls\",\"-l\"],\"stdin\":true,\"timeout_ms\":1500,\"user\":\"0\"}");
    CHECK(exec_spec_from_args(&a, ARGV("\xff"), &doc, NULL) == -ERR_INVALID);
    CHECK(exec_spec_from_args(&a, ARGV(""), &doc, NULL) == -ERR_INVALID);
}

/* Renders `text` in pieces of n bytes. */
static char *escaped_by(const char *text, size_t n)
{
    struct render_state st = {0};
    struct buf b = BUF_INIT(4096);
    int r = 0;

    for (size_t i = 0; i < strlen(text) && r == 0; i += n)
        r = render_escaped(&st, text + i, MIN(n, strlen(text) - i), &b);
    if (r == 0)
        r = render_finish(&st, &b);
    return r < 0 ? NULL : buf_steal(&b);
}

TEST(escaping_does_not_depend_on_the_pieces)
{
    static const char text[] = "a\033[2Jb\tä€😀\n\xff\xe2\x82x\xe2\x80\xae\xc3";

    for (size_t n = 1; n < sizeof(text); n++) {
        _cleanup_free_ char *got = escaped_by(text, n);

        CHECK_STR(got, "a\\x1b[2Jb\tä€😀\n\\xff\\xe2\\x82x\\u{202e}\\xc3");
    }
}

TEST(terminal_line_ends_stay_readable)
{
    _cleanup_free_ char *got = escaped_by("a\r\nb\rc\r", 64);

    CHECK_STR(got, "a\r\nb\\x0dc\\x0d");
}

TEST(json_lines_are_exact)
{
    _cleanup_buf_ struct buf b = BUF_INIT(4096);

    CHECK(render_json("stdout", 7, "hi\n", 3, &b) == 0);
    CHECK(render_json("stderr", 0, "\xff\x00", 2, &b) == 0);
    CHECK(render_json("stderr", 2, "a\xff", 2, &b) == 0);
    CHECK_STR(buf_data(&b), "{\"type\":\"stdout\",\"offset\":7,\"data\":\"hi\\n\"}\n"
                            "{\"type\":\"stderr\",\"offset\":0,\"base64\":\"/wA=\"}\n"
                            "{\"type\":\"stderr\",\"offset\":2,\"base64\":\"Yf8=\"}\n");
}

static char *words_of(const char *text, int *status)
{
    _cleanup_json_ json_t *end = NULL;

    if (json_parse("test", text, strlen(text), &end, NULL) < 0)
        return NULL;
    *status = end_status(end);
    return end_words(end, 5000, 0);
}

TEST(ends_as_text)
{
    static const struct {
        const char *end, *has;
        int status;
    } cases[] = {
        {"{\"cause\":\"exited\",\"status\":3}", NULL, 3},
        {"{\"cause\":\"exited\",\"status\":0,\"oom_kills\":1,\"memory_limit\":1048576}",
         "1 process of the command killed (limit 1 MiB)", 0},
        {"{\"cause\":\"timeout\",\"status\":137,\"message\":\"after 5.003 s\"}", "after 5s", 137},
        {"{\"cause\":\"idle_timeout\",\"status\":137,\"message\":\"idle\"}", "idle", 137},
        {"{\"cause\":\"start_failed\",\"status\":127,\"message\":\"no 'x'\"}", "no 'x'", 127},
        {"{\"cause\":\"engine_lost\"}", "the command ended: engine_lost", 125},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int status = -1;
        _cleanup_free_ char *words = words_of(cases[i].end, &status);

        CHECK(status == cases[i].status);
        CHECK(cases[i].has ? words && strstr(words, cases[i].has) != NULL : words == NULL);
    }
}

TEST(times)
{
    char age[AGE_MAX];

    CHECK(output_parse_time("1970-01-01T00:00:01.500Z") == 1500000);
    CHECK(output_parse_time("2026-11-16T00:00:00Z") == UINT64_C(1794787200000000));
    CHECK(output_parse_time("yesterday") == 0);
    CHECK_STR(output_age(NULL, age), "-");
}

/* Expected: "user password", "" without credentials, or NULL when the file is refused. */
static bool auth_is(const char *text, const char *registry, const char *want)
{
    struct docker_auth a = {0};
    _cleanup_free_ char *found = NULL;

    if (docker_auth_parse(text, strlen(text), registry, &a, NULL) < 0)
        return !want;
    found = a.username ? xasprintf("%s %s", a.username, a.password) : xstrdup("");
    docker_auth_done(&a);
    return want && STREQ(found, want);
}

TEST(credentials_of_docker_are_found_by_registry)
{
    static const char file[] = "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"dTpw\"},"
                               "\"ghcr.io\":{\"auth\":\"bWU6YTpi\"},\"odd.io\":{}}}";

    CHECK(auth_is(file, "docker.io", "u p"));
    CHECK(auth_is(file, "ghcr.io", "me a:b"));
    CHECK(auth_is(file, "odd.io", ""));
    CHECK(auth_is(file, "ghcr.i", ""));
    CHECK(auth_is("{}", "docker.io", ""));
    CHECK(auth_is("{\"auths\":{\"x.io\":{\"auth\":\"!\"}}}", "x.io", NULL));
    CHECK(auth_is("{\"auths\":{\"x.io\":{\"auth\":\"dXA=\"}}}", "x.io", NULL));
    CHECK(auth_is("hello", "x.io", NULL));
}

/* All credentials as "registry=user password;". */
static char *logins_for(const char *file, const char *text)
{
    const char *const texts[] = {"", text};
    _cleanup_json_ json_t *all = NULL;
    struct buf b = BUF_INIT(1000);
    const char *registry;
    json_t *login;

    if (docker_auth_parse_all(file, strlen(file), texts, ARRAY_SIZE(texts), &all, NULL) < 0)
        return xstrdup("refused");
    json_object_foreach (all, registry, login)
        (void)!buf_appendf(&b, "%s=%s %s;", registry,
                           json_string_value(json_object_get(login, "username")),
                           json_string_value(json_object_get(login, "password")));
    return buf_steal(&b);
}

TEST(a_build_gets_only_credentials_that_its_text_may_need)
{
    static const char file[] = "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"dTpw\"},"
                               "\"https://ghcr.io/v2/\":{\"auth\":\"bWU6YTpi\"},\"odd.io\":{},"
                               "\"bad.io\":{\"auth\":\"!\"}}}";
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"FROM debian", "docker.io=u p;"},
        {"FROM ghcr.io/a/b", "docker.io=u p;ghcr.io=me a:b;"},
        {"ARG R=ghcr.io\nFROM $R/a", "docker.io=u p;ghcr.io=me a:b;"},
        {"FROM odd.io/a", "docker.io=u p;"},
        {"FROM bad.io/a", "refused"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *found = logins_for(file, cases[i].text);

        CHECK_STR(found, cases[i].want);
    }
    {
        _cleanup_free_ char *none = logins_for("{}", "x"), *bad = logins_for("hello", "x");

        CHECK_STR(none, "");
        CHECK_STR(bad, "refused");
    }
}
