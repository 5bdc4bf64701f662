#include "tap.h"

#include <stdlib.h>

#include "image/dockerfile/config.h"
#include "image/dockerfile/dockerfile.h"
#include "image/dockerfile/duration.h"
#include "image/dockerfile/expand.h"
#include "image/dockerfile/ignore.h"
#include "image/dockerfile/json-list.h"
#include "image/dockerfile/pattern.h"
#include "large-command.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static struct dockerfile *parse(const char *text)
{
    struct dockerfile *df = NULL;
    struct err err = ERR_INIT;

    if (dockerfile_parse(text, strlen(text), &df, NULL, &err) < 0)
        printf("# %s\n", err.msg);
    err_done(&err);
    return df;
}

/* The source text of a word. */
static char *source_of(const struct dockerfile *df, const struct dockerfile_word *w)
{
    return xstrndup(df->text + w->at, w->end - w->at);
}

static bool refuses(const char *text, size_t len, const char *words)
{
    struct dockerfile *df = NULL;
    struct err err = ERR_INIT;
    bool good = dockerfile_parse(text, len, &df, NULL, &err) < 0 && strstr(err.msg, words);

    if (!good)
        printf("# %s\n", err.msg ? err.msg : "accepted");
    err_done(&err);
    dockerfile_free(df);
    return good;
}

/* ---- the tree and its positions ---- */

TEST(words_have_positions)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df =
        parse("# c\nFROM scratch AS b\nCOPY --chown=1:2 a \\\n  # no\n  bb \\\n  /dst/\n");
    const struct dockerfile_instruction *in;
    struct dockerfile_pos pos;
    _cleanup_free_ char *text = NULL;

    CHECK(df && df->n_instructions == 2 && df->n_stages == 1);
    CHECK_STR(df->stages[0].name, "b");
    in = &df->instructions[1];
    CHECK(in->n_words == 3 && in->n_flags == 1);
    pos = dockerfile_pos(df, in->words[1].at);
    CHECK(pos.line == 5 && pos.column == 3);
    pos = dockerfile_pos(df, in->flags[0].at);
    CHECK(pos.line == 3 && pos.column == 6);
    text = source_of(df, &in->words[2]);
    CHECK_STR(text, "/dst/");
    CHECK_STR(dockerfile_flag(in, "chown"), "1:2");
    CHECK(!dockerfile_flag(in, "chmod"));
}

TEST(exec_form_has_positions)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df =
        parse("FROM scratch\nCMD [\"a\", \\\n  \"b\\tc\"]\n");
    const struct dockerfile_instruction *in;
    struct dockerfile_pos pos;

    CHECK(df);
    in = &df->instructions[1];
    CHECK(in->json && in->n_words == 2);
    CHECK_STR(in->words[1].text, "b\tc");
    pos = dockerfile_pos(df, in->words[1].at);
    CHECK(pos.line == 3 && pos.column == 3);
}

TEST(heredocs_are_read)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df =
        parse("FROM scratch\nRUN <<A cat <<-'B'\none $x\nA\n\ttwo\n\tB\nUSER u\n");
    const struct dockerfile_instruction *in;

    CHECK(df && df->n_instructions == 3);
    in = &df->instructions[1];
    CHECK(in->n_heredocs == 2);
    CHECK_STR(in->heredocs[0].content, "one $x\n");
    CHECK(in->heredocs[0].expand && !in->heredocs[0].chomp);
    CHECK_STR(in->heredocs[1].content, "\ttwo\n");
    CHECK(!in->heredocs[1].expand && in->heredocs[1].chomp);
    CHECK(dockerfile_pos(df, in->heredocs[1].at).line == 5);
    CHECK(df->instructions[2].kind == DOCKERFILE_USER);
}

TEST(stages_and_globals)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df =
        parse("ARG A=1\nARG B\nFROM x AS one\nRUN a\nRUN b\nFROM y\nFROM one AS Two\nCMD c\n");

    CHECK(df && df->n_globals == 2 && df->n_stages == 3);
    CHECK(df->stages[0].last - df->stages[0].first == 2);
    CHECK(df->stages[1].last == df->stages[1].first);
    CHECK(dockerfile_find_stage(df, "ONE", 2) == 0);
    CHECK(dockerfile_find_stage(df, "two", 2) == -1);
    CHECK(dockerfile_find_stage(df, "1", 2) == 1 && dockerfile_find_stage(df, "2", 2) == -1);
}

TEST(mounts_are_read)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df =
        parse("FROM x\nRUN --mount=type=cache,target=/c,uid=5 --mount=target=/b,ro=false true\n");
    const struct dockerfile_instruction *in;

    CHECK(df);
    in = &df->instructions[1];
    CHECK(in->n_mounts == 2 && in->mounts[0].type == MOUNT_CACHE && !in->mounts[0].read_only);
    CHECK_STR(in->mounts[0].target, "/c");
    CHECK_STR(in->mounts[0].uid, "5");
    CHECK(in->mounts[1].type == MOUNT_BIND && !in->mounts[1].read_only);
    CHECK_STR(in->words[0].text, "true");
}

/* chown() to 4294967295 leaves the owner unchanged. Larger numbers wrapped to 0 once. */
TEST(mount_owners_are_valid_ids)
{
    static const char *const wrong[] = {"4294967295", "4294967296", "9999999999", "-1", ""};
    struct dockerfile_mount m;

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        for (int gid = 0; gid < 2; gid++) {
            const char *what = gid ? "gid" : "uid";
            _cleanup_free_ char *text =
                xasprintf("FROM x\nRUN --mount=type=cache,target=/c,%s=%s y\n", what, wrong[i]);
            _cleanup_free_ char *said =
                xasprintf("line 2, column 5: --mount: invalid %s '%s'", what, wrong[i]);

            CHECK(refuses(text, strlen(text), said));
        }
    CHECK(mount_parse("type=ssh,uid=4294967294,gid=0,mode=0640", false, &m, NULL) >= 0);
    CHECK(mount_number(m.uid, 10, 7) == 4294967294 && mount_number(m.gid, 10, 7) == 0);
    CHECK(mount_number(m.mode, 8, 0600) == 0640 && mount_number(NULL, 8, 0600) == 0600);
    mount_done(&m);
}

TEST(directives_and_comments)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = parse(
        "# syntax = a/b:1\n#check=skip=x\n# escape=`\n\n# one\n# two\nFROM x\n\n# far\n\nRUN y\n");

    CHECK(df && df->escape == '`');
    CHECK_STR(df->syntax, "a/b:1");
    CHECK_STR(df->check, "skip=x");
    CHECK(dockerfile_pos(df, df->instructions[0].lead).line == 5);
    CHECK(df->instructions[1].lead == df->instructions[1].at);
}

TEST(empty_continuation_lines_are_noted)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = parse("FROM x\nRUN a \\\n\n  b\n");

    CHECK(df && df->instructions[1].line.gap);
    CHECK(dockerfile_pos(df, df->instructions[1].line.gap_at).line == 3);
    CHECK_STR(df->instructions[1].words[0].text, "a   b");
}

/* ---- hostile files ---- */

TEST(a_line_of_ten_megabytes_is_refused)
{
    size_t len = 10 << 20;
    char *text = xmalloc(len);

    memset(text, 'x', len);
    CHECK(refuses(text, len, "bytes"));
    free(text);
    text = xmalloc(len = 1 << 20);
    memset(text, 'x', len);
    memcpy(text, "FROM a\nRUN ", 11);
    CHECK(refuses(text, len, "line 2, column 1: this line has"));
    free(text);
}

TEST(a_hundred_thousand_stages_are_refused)
{
    struct buf b = BUF_INIT(1 << 20);

    for (int i = 0; i < 100000; i++)
        (void)!buf_append_str(&b, "FROM a\n");
    CHECK(refuses(buf_data(&b), b.len, "line 1001, column 1: too many stages (the limit is 1000)"));
    buf_done(&b);
}

TEST(nul_bytes_are_refused)
{
    CHECK(refuses("FROM a\nRUN a\0b\n", 15, "line 2, column 1"));
    CHECK(refuses("FROM a\nRUN <<E\na\0b\nE\n", 21, "NUL"));
}

TEST(doubling_values_are_refused)
{
    struct buf b = BUF_INIT(1 << 20);
    struct dockerfile *df;
    struct dockerfile_config c = {0};
    struct err err = ERR_INIT;

    (void)!buf_append_str(&b, "FROM scratch\nENV A=xxxxxxxxxxxxxxxx\n");
    for (int i = 0; i < 64; i++)
        (void)!buf_append_str(&b, "ENV A=$A$A\n");
    df = parse(buf_data(&b));
    CHECK(df);
    CHECK(config_evaluate(df, &(struct config_inputs){0}, &c, NULL, &err) == -ERR_LIMIT);
    CHECK(strstr(err.msg, "line 15, column 7"));
    err_done(&err);
    dockerfile_free(df);
    buf_done(&b);
}

/* The result of a Dockerfile that sets these variables: enum err_code, negative. */
static int evaluate_variables(char *const *variables, const char *rest)
{
    struct buf b = BUF_INIT(DOCKERFILE_SIZE_MAX);
    struct dockerfile_config c = {0};
    struct dockerfile *df;
    int r = buf_append_str(&b, "FROM scratch AS s\n");

    for (; *variables && r >= 0; variables++) {
        _cleanup_free_ char *folded = large_folded(*variables);

        r = buf_appendf(&b, "ENV %s\n", folded);
    }
    if (r < 0 || buf_append_str(&b, rest) < 0)
        abort();
    df = parse(buf_data(&b));
    r = config_evaluate(df, &(struct config_inputs){0}, &c, NULL, NULL);
    config_done(&c);
    dockerfile_free(df);
    buf_done(&b);
    return r;
}

/* The scope has a few variables of its own: TARGETARCH, … are only in it after an ARG. */
TEST(variables_may_be_as_large_as_linux_takes)
{
    _cleanup_free_ char *longest = large_string("A=", COMMAND_STRING_MAX - 1);
    _cleanup_free_ char *longer = large_string("A=", COMMAND_STRING_MAX);
    char *one[] = {longest, NULL}, *over[] = {longer, NULL};
    /* FROM scratch sets a PATH. */
    const size_t path = command_size((char *const[]){
        (char *)"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL});
    _cleanup_strv_ char **all = large_command(COMMAND_MAX - path, true);
    _cleanup_strv_ char **more = large_command(COMMAND_MAX - path + 1, true);

    CHECK(evaluate_variables(one, "") == 0);
    CHECK(evaluate_variables(over, "") == -ERR_LIMIT);
    CHECK(evaluate_variables(all, "") == 0);
    CHECK(evaluate_variables(more, "") == -ERR_LIMIT);
}

TEST(stages_cannot_multiply_variables)
{
    _cleanup_strv_ char **large = large_command(1 << 20, true);
    char few[] = "FROM s AS s\nFROM s AS s\n";
    struct buf many = BUF_INIT(1 << 20);

    for (int i = 0; i < 40; i++)
        (void)!buf_append_str(&many, "FROM s AS s\n");
    CHECK(evaluate_variables(large, few) == 0);
    CHECK(evaluate_variables(large, buf_data(&many)) == -ERR_LIMIT);
    buf_done(&many);
}

TEST(deep_substitutions_are_refused)
{
    struct buf b = BUF_INIT(1 << 20);
    struct expand x = {.escape = '\\', .get = NULL};
    char *out;

    for (int i = 0; i < 1000; i++)
        (void)!buf_append_str(&b, "${a:-");
    x.get = (const char *(*)(void *, const char *))(void (*)(void))strv_env_get;
    CHECK(expand_word(&x, buf_data(&b), &out, NULL) == -ERR_LIMIT);
    buf_done(&b);
}

/* ---- parts ---- */

TEST(durations)
{
    int64_t ns;

    CHECK(duration_parse("1h2m3.5s", &ns, NULL) == 0 && ns == 3723500000000);
    CHECK(duration_parse("-5ms", &ns, NULL) == 0 && ns == -5000000);
    CHECK(duration_parse("0", &ns, NULL) == 0 && ns == 0);
    CHECK(duration_parse("5", &ns, NULL) < 0 && duration_parse("", &ns, NULL) < 0);
    CHECK(duration_parse("5x", &ns, NULL) < 0 && duration_parse("1mx", &ns, NULL) < 0);
    CHECK(duration_parse("99999999999h", &ns, NULL) < 0);
}

static bool replaced(const char *pattern, const char *value, const char *with, bool all,
                     const char *want)
{
    struct buf b = BUF_INIT(1000);
    bool good =
        pattern_replace(pattern, value, with, all, &b, NULL) == 0 && STREQ(buf_data(&b), want);

    if (!good)
        printf("# %s in %s: %s\n", pattern, value, buf_data(&b));
    buf_done(&b);
    return good;
}

TEST(patterns)
{
    CHECK(replaced("b", "abcb", "X", false, "aXcb") && replaced("b", "abcb", "X", true, "aXcX"));
    CHECK(replaced("", "ab", "-", true, "-a-b-") && replaced("*", "ab", "-", true, "-"));
    CHECK(replaced("a*c", "xabcabcy", "-", false, "x-y"));
    CHECK(replaced("?", "a\nb", ".", true, ".\n."));
    CHECK(replaced("\\*", "a*b", "x", true, "axb") && replaced("\\/", "a/b", "x", true, "axb"));
}

TEST(hostile_patterns_are_cheap)
{
    struct buf p = BUF_INIT(1 << 20), v = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

    for (int i = 0; i < 1500; i++)
        (void)!buf_append_str(&p, "*a");
    for (int i = 0; i < 8000; i++)
        (void)!buf_append_str(&v, "a");
    (void)!buf_append_str(&p, "b");
    CHECK(pattern_replace(buf_data(&p), buf_data(&v), "", true, &out, NULL) == 0);
    CHECK(out.len == 8000);
    buf_done(&p);
    buf_done(&v);
    buf_done(&out);
}

static enum json_list_result list(const char *s)
{
    struct json_list_item *items;
    size_t n;
    enum json_list_result r = json_list_parse(s, 0, strlen(s), &items, &n);

    if (r != JSON_LIST_NO)
        json_list_free(items, n);
    return r;
}

TEST(json_lists)
{
    CHECK(list("[]") == JSON_LIST_YES && list(" [ \"a\" , \"b\" ] ") == JSON_LIST_YES);
    CHECK(list("[1]") == JSON_LIST_MIXED && list("[\"a\", {\"b\": [null]}]") == JSON_LIST_MIXED);
    CHECK(list("[\"a\"") == JSON_LIST_NO && list("[\"a\",]") == JSON_LIST_NO);
    CHECK(list("[\"a\"] x") == JSON_LIST_NO && list("[a]") == JSON_LIST_NO);
    CHECK(list("[\"\\x\"]") == JSON_LIST_NO && list("[01]") == JSON_LIST_NO);
}

/* ---- .dockerignore ---- */

static bool ignored(const char *file, const char *path)
{
    struct ignore *ig = NULL;
    bool yes = ignore_parse(file, strlen(file), &ig, NULL) == 0 && ignore_matches(ig, path);

    ignore_free(ig);
    return yes;
}

/* clang-format off */
static const struct { const char *file, *path; bool yes; } ignore_cases[] = {
    {"a", "a", true}, {"a", "a/b/c", true}, {"a", "ab", false}, {"a", "b/a", false},
    {"/a", "a", true}, {"a/", "a/b", true}, {"./a", "a", true}, {"b/../a", "a", true},
    {"*", "a/b", true}, {"*.go", "a.go", true}, {"*.go", "d/a.go", false}, {"*/a", "d/a", true},
    {"*/a", "a", false}, {"*/*/a", "d/e/a", true}, {"a?", "ab", true}, {"a?", "a", false},
    {"a?b", "a/b", false}, {"**", "a/b", true}, {"**/a", "a", true}, {"**/a", "x/y/a", true},
    {"**/a", "x/ya", false}, {"**/*.go", "a.go", true}, {"**/*.go", "x/y/a.go", true},
    {"a/**", "a/b/c", true}, {"a/**", "a", false}, {"a/**/b", "a/b", true},
    {"a/**/b", "a/x/y/b", true}, {"a/**/b", "a/xb", false}, {"**a", "xa", true},
    {"[a-c]x", "bx", true}, {"[^a-c]x", "bx", false}, {"[^a-c]x", "dx", true},
    {"\\*", "*", true}, {"\\*", "a", false}, {"# a\nb", "# a", false}, {"  b  ", "b", true},
    {"*\n!a", "a", false}, {"*\n!a", "b", true}, {"*\n!a\na", "a", true},
    {"*.md\n!README*.md\nREADME-secret.md", "README-secret.md", true},
    {"*.md\n!README*.md\nREADME-secret.md", "README-x.md", false},
    {"d\n!d/keep", "d/keep", false}, {"d\n!d/keep", "d/other", true},
    {"\xef\xbb\xbf" "a", "a", true}, {"\xc3\xa4?", "\xc3\xa4\xc3\xb6", true}, {"", "a", false},
    {"a\r\nb\r\n", "b", true}, {".", "a", false},
};
/* clang-format on */

TEST(ignore_patterns)
{
    for (size_t i = 0; i < ARRAY_SIZE(ignore_cases); i++) {
        if (ignored(ignore_cases[i].file, ignore_cases[i].path) != ignore_cases[i].yes)
            printf("# '%s' and '%s'\n", ignore_cases[i].file, ignore_cases[i].path);
        CHECK(ignored(ignore_cases[i].file, ignore_cases[i].path) == ignore_cases[i].yes);
    }
}

TEST(ignore_refuses_invalid_patterns)
{
    static const char *const wrong[] = {"!", "a\n[", "[]a]", "a\\", "[a-]"};
    struct ignore *ig;

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        CHECK(ignore_parse(wrong[i], strlen(wrong[i]), &ig, NULL) < 0);
}
