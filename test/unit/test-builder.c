/* The builder's plan, its keys and its copies. Builds as a whole are tested by
 * test/integration/test_build.py, in the namespaces that they always have. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "image/build/add-source.h"
#include "image/build/base-image.h"
#include "image/build/cache-key.h"
#include "image/build/config-json.h"
#include "image/build/copy.h"
#include "image/build/history.h"
#include "image/build/layer-cleanup.h"
#include "image/build/mount-placeholders.h"
#include "image/build/plan.h"
#include "image/build/sources.h"
#include "image/build/stages.h"
#include "image/build/step-cache.h"
#include "image/oci/manifest.h"
#include "large-command.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "lib/os/whiteout.h"
#include "tap.h"

#define A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static struct err err;
static char folder[] = "/tmp/test-builder-XXXXXX";
static int top = -1; /* descriptor of that folder */

static int forget(int r)
{
    err_done(&err);
    err = (struct err)ERR_INIT;
    return r;
}

static void fresh(void)
{
    forget(0);
    top = fd_close(top);
    rmtree(AT_FDCWD, folder, NULL);
    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    if (!mkdtemp(folder) || dir_open(AT_FDCWD, folder, &top, &err) < 0)
        abort();
}

static void put(const char *path, const char *text)
{
    _cleanup_free_ char *copy = xstrdup(path);
    char *slash = strrchr(copy, '/');

    if (slash) {
        *slash = '\0';
        if (dir_make_all(top, copy, 0755, &err) < 0)
            abort();
    }
    if (file_replace(top, path, text, strlen(text), 0644, false, &err) < 0)
        abort();
}

static bool has(const char *path, const char *text)
{
    _cleanup_free_ char *found = NULL;

    return file_read(top, path, 1 << 16, &found, NULL, NULL) >= 0 && STREQ(found, text);
}

/* ---- the plan ---- */

/* Images: "base" has a variable and a trigger, "above" is built on "host"; no others exist. */
static int image(void *arg, const char *name, struct dockerfile_config *ret, bool *on_host,
                 struct err *e)
{
    (void)arg;
    *on_host = STREQ(name, "host") || STREQ(name, "above");
    if (*on_host)
        return 0;
    if (!STREQ(name, "base"))
        return err_set(e, ERR_NOT_FOUND, "no image '%s'", name);
    strv_add(&ret->env, "BASE=7");
    ret->scope = strv_copy(ret->env);
    strv_add(&ret->triggers, "RUN trigger $BASE");
    return 0;
}

static int make(const char *text, const char *target, struct build_plan *ret)
{
    char *args[] = {(char *)"GIVEN=yes", NULL};
    char *agents[] = {(char *)"given=/x", NULL};
    const struct config_inputs inputs = {.build_args = args, .target = target};
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    int r;

    forget(0);
    r = dockerfile_parse(text, strlen(text), &df, NULL, &err);
    return r < 0 ? r : build_plan_make(df, &inputs, agents, image, NULL, ret, &err);
}

TEST(plan_has_steps_with_everything_expanded)
{
    struct build_plan p;
    const struct build_plan_step *s;

    CHECK(make("FROM base AS one\nARG GIVEN\nENV DIR=/d\nWORKDIR $DIR\nRUN echo $GIVEN\n"
               "COPY --chown=$BASE a b $DIR/x/\nUSER u\nRUN [\"a\", \"b\"]\n",
               NULL, &p) >= 0);
    CHECK(p.stages[0].n_steps == 5 && build_stage_total(&p.stages[0]) == 6);
    s = p.stages[0].steps;
    CHECK_STR(s[0].argv[2], "trigger $BASE");
    CHECK(s[1].kind == DOCKERFILE_WORKDIR);
    CHECK_STR(s[1].workdir, "/d");
    CHECK_STR(s[2].argv[2], "echo $GIVEN");
    CHECK_STR(strv_env_get(s[2].env, "GIVEN"), "yes");
    CHECK(s[2].user == NULL && s[2].line == 5);
    CHECK_STR(s[3].chown, "7");
    CHECK_STR(s[3].dest, "/d/x/");
    CHECK(strv_len(s[3].sources) == 2 && s[3].from.stage < 0);
    CHECK(strv_len(s[4].argv) == 2);
    CHECK_STR(s[4].user, "u");
    CHECK_STR(p.config.workdir, "/d");
    build_plan_done(&p);
}

TEST(history_matches_buildkit)
{
    static const char text[] =
        "FROM scratch AS a\nARG X=1\nFROM a\nARG Y\nENV P=a Q=\"b $X\" P=$P:c\n"
        "LABEL l=\"v w\"\nRUN echo\nCOPY a b <<H d/\nin\nH\n"
        "CMD [\"a\\n\", \"b\\\"\"]\nENTRYPOINT run\nEXPOSE 80 90-91/udp\nVOLUME /v /$X\n"
        "HEALTHCHECK --interval=90s --timeout=1500ms --start-period=20ms --retries=2 CMD t\n"
        "WORKDIR w\nUSER u\nSHELL [\"s\", \"-c\"]\nSTOPSIGNAL INT\nMAINTAINER m\nONBUILD RUN x\n";
    static const char health[] =
        "HEALTHCHECK {Test:[CMD-SHELL t] Interval:1m30s Timeout:1.5s StartPeriod:20ms "
        "StartInterval:0s Retries:2}";
    static const char *const want[] = {
        "ARG Y",
        "ENV P=:c Q=b 1 P=:c",
        "LABEL l=v w",
        "RUN |2 X=1 Y= /bin/sh -c echo # buildkit",
        "COPY a b <<H d/ # buildkit",
        "CMD [\"a\\n\" \"b\\\"\"]",
        "ENTRYPOINT [\"/bin/sh\" \"-c\" \"run\"]",
        "EXPOSE [80/tcp 90/udp 91/udp]",
        "VOLUME [/v /1]",
        health,
        "WORKDIR /w",
        "USER u",
        "SHELL [s -c]",
        "STOPSIGNAL INT",
        "MAINTAINER m",
    };
    struct build_plan p;

    CHECK(make(text, NULL, &p) >= 0);
    CHECK(p.stages[0].n_notes == 1 && p.stages[1].n_notes == ARRAY_SIZE(want));
    for (size_t i = 0; i < MIN(p.stages[1].n_notes, ARRAY_SIZE(want)); i++)
        CHECK_STR(p.stages[1].notes[i].text, want[i]);
    CHECK(p.stages[1].notes[3].step == 0 && p.stages[1].notes[4].step == 1);
    CHECK(p.stages[1].notes[10].step == 2 && p.stages[1].notes[11].step == -1);
    build_plan_done(&p);
}

TEST(history_that_would_be_too_long_is_cut)
{
    enum { LINE = HISTORY_MAX / 5 };
    _cleanup_free_ char *line = xmalloc(LINE + 1), *text = NULL;
    struct build_plan p;

    memset(line, 'x', LINE);
    line[LINE] = '\0';
    text = xasprintf("FROM scratch\nRUN %s\nRUN %s\nRUN %s\nRUN %s\nRUN %s\nUSER u\n", line, line,
                     line, line, line);
    CHECK(make(text, NULL, &p) >= 0);
    CHECK(strlen(p.stages[0].notes[3].text) > LINE);
    CHECK_STR(p.stages[0].notes[4].text, "RUN");
    CHECK_STR(p.stages[0].notes[5].text, "USER u");
    build_plan_done(&p);
}

static json_t *lines(const char *text)
{
    json_t *ret = NULL;

    if (json_parse("lines", text, strlen(text), &ret, &err) < 0)
        abort();
    return ret;
}

TEST(history_of_a_base_is_kept_only_when_it_fits_its_layers)
{
    _cleanup_json_ json_t *good = lines("[{\"created_by\":\"x\",\"evil\":[1]},"
                                        "{\"created_by\":\"y\",\"empty_layer\":true}]");
    _cleanup_json_ json_t *kept = history_of_base(good, 1), *made = history_of_base(good, 2);
    _cleanup_json_ json_t *none = history_of_base(NULL, 0);
    _cleanup_free_ char *text = json_to_text(kept, true);

    CHECK_STR(text, "[{\"created_by\":\"x\"},{\"created_by\":\"y\",\"empty_layer\":true}]");
    CHECK(json_array_size(made) == 2 && !json_object_get(json_array_get(made, 1), "empty_layer"));
    CHECK(json_array_size(none) == 0);
}

TEST(history_has_times_and_is_utf8)
{
    _cleanup_json_ json_t *list = lines("[{\"created\":\"0\"}]");
    static const char *const want[] = {"0", "1", "1", "1", "2", "2"};

    history_add(list, "ENV \xff", false, NULL);
    history_add(list, "RUN", true, "1");
    history_add(list, "ENV", false, NULL);
    history_add(list, "RUN", true, "2");
    history_add(list, "ENV", false, NULL);
    history_fill_times(list);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        CHECK_STR(json_string_value(json_object_get(json_array_get(list, i), "created")), want[i]);
    CHECK_STR(json_string_value(json_object_get(json_array_get(list, 1), "created_by")),
              "ENV \xef\xbf\xbd");
}

TEST(plan_has_only_the_stages_of_the_target)
{
    static const char text[] = "FROM scratch AS a\nCOPY x /\nFROM nowhere AS b\nRUN x\n"
                               "FROM a AS c\nCOPY --from=a /x /y\nFROM b AS d\n";
    struct build_plan p;

    CHECK(make(text, "c", &p) >= 0);
    CHECK(p.stages[0].needed && !p.stages[1].needed && p.stages[2].needed && !p.stages[3].needed);
    CHECK(p.target == 2 && p.stages[2].base == 0 && p.stages[2].steps[0].from.stage == 0);
    build_plan_done(&p);
    CHECK(forget(make(text, NULL, &p)) == -ERR_NOT_FOUND);
}

TEST(plan_splits_heredocs)
{
    struct build_plan p;
    const struct build_plan_step *s;

    CHECK(make("FROM scratch\nARG GIVEN\nRUN <<EOF\nline $x\nEOF\nRUN <<E\n#!/bin/py\nx\nE\n"
               "RUN cat <<E\nin\nE\nCOPY <<f <<'g' /d/\n$GIVEN\nf\n$GIVEN\ng\n",
               NULL, &p) >= 0);
    s = p.stages[0].steps;
    CHECK_STR(s[0].argv[2], "line $x\n");
    CHECK_STR(s[1].argv[0], BUILD_SCRIPT_DIR "/E");
    CHECK_STR(s[1].script.content, "#!/bin/py\nx\n");
    CHECK_STR(s[2].argv[2], "cat <<E\nin\nE");
    CHECK(s[3].n_files == 2 && !s[3].sources);
    CHECK_STR(s[3].files[0].content, "yes\n");
    CHECK_STR(s[3].files[1].content, "$GIVEN\n");
    build_plan_done(&p);
}

TEST(plan_refuses_unsupported_instructions_with_their_place)
{
    static const struct {
        const char *text, *place;
        int code;
    } cases[] = {
        {"FROM scratch\nRUN --mount=type=ssh,required x\n", "line 2, column 5", ERR_INVALID},
        {"FROM scratch\nRUN --mount=type=ssh,id=give,required x\n", "line 2, column 5",
         ERR_INVALID},
        {"FROM scratch\nRUN --mount=type=ssh,source=a x\n", "line 2, column 5", ERR_INVALID},
        {"FROM scratch\nRUN --mount=type=cache,target=/c,uid=4294967295 x\n", "line 2, column 5",
         ERR_INVALID},
        {"FROM scratch\nARG ID=4294967295\nRUN --mount=type=ssh,gid=$ID x\n", "line 3, column 5",
         ERR_INVALID},
        {"FROM scratch\nRUN --mount=type=secret,id=a,uid=65536 x\n", "line 2, column 5",
         ERR_UNSUPPORTED},
        {"FROM scratch\nRUN a --b \\\n c\nRUN --mount=type=cache,target=/c,gid=4294967294 x\n",
         "line 4, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nRUN --network=host x\n", "line 2, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nRUN --security=insecure x\n", "line 2, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nADD https://a/b.git#v1:d /c\n", "line 2, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nADD --checksum=sha512:00 https://a/b /c\n", "line 2, column 5",
         ERR_UNSUPPORTED},
        {"FROM scratch\nADD --checksum=sha256:00 https://a/b /c\n", "line 2, column 5",
         ERR_INVALID},
        {"FROM scratch\nADD --checksum=sha256:00 a /c\n", "line 2, column 5", ERR_INVALID},
        {"FROM scratch\nADD https://a/b https://a/c /c\n", "line 2, column 29", ERR_INVALID},
        {"FROM scratch\nADD a https://a/%00 /c/\n", "line 2, column 7", ERR_INVALID},
        {"FROM scratch\nCOPY --chmod=u+x a /c\n", "line 2, column 6", ERR_UNSUPPORTED},
        {"FROM scratch\nRUN --mount=type=secret,id=a,target=/run/secrets/x/y z\n",
         "line 2, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nRUN --mount=type=secret,id=a,target=/ y\n", "line 2, column 5",
         ERR_INVALID},
        {"FROM scratch\nADD git@host:a/b.git /c\n", "line 2, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nADD --keep-git-dir a /c\n", "line 2, column 5", ERR_UNSUPPORTED},
        {"FROM scratch\nCOPY --exclude=[x a /c\n", "line 2, column 6", ERR_INVALID},
        {"FROM scratch\nRUN --mount=type=cache x\n", "line 2, column 5", ERR_INVALID},
        {"FROM scratch\nCOPY a b /c\n", "line 2, column 10", ERR_INVALID},
        {"FROM --platform=linux/riscv64 scratch\n", "line 1, column 1", ERR_UNSUPPORTED},
        {"FROM host\nCOPY a /usr/b\n", "line 2, column 8", ERR_UNSUPPORTED},
        {"FROM above\nWORKDIR /opt/../usr\n", "line 2, column 9", ERR_UNSUPPORTED},
        {"FROM host AS a\nFROM a\nADD a \\\n /usr/\n", "line 4, column 2", ERR_UNSUPPORTED},
        {"FROM host AS a\nFROM base\nCOPY --from=a x //usr/b /c/\n", "line 3, column 17",
         ERR_UNSUPPORTED},
        {"FROM base\nCOPY --from=above usr /c\n", "line 2, column 19", ERR_UNSUPPORTED},
        {"FROM base\nRUN --mount=from=above,source=/usr,target=/c x\n", "line 2, column 5",
         ERR_UNSUPPORTED},
        {"FROM host\nCOPY --from=host etc /c\n", "line 2, column 6", ERR_UNSUPPORTED},
        {"FROM scratch\nCOPY --from=missing a /\n", "line 2, column 6", ERR_NOT_FOUND},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct build_plan p;

        int r = make(cases[i].text, NULL, &p);

        if (r != -cases[i].code)
            printf("# case %zu: %d %s\n", i, r, err.msg ? err.msg : "");
        CHECK(r == -cases[i].code);
        CHECK(strncmp(err.msg, cases[i].place, strlen(cases[i].place)) == 0);
        CHECK(cases[i].code != ERR_UNSUPPORTED || (err.hint && *err.hint));
    }
    forget(0);
}

/* The result of planning "FROM scratch", the text, the string in lines, and the end. */
static int make_with(const char *text, const char *string, const char *end)
{
    _cleanup_free_ char *folded = large_folded(string);
    _cleanup_free_ char *all = xasprintf("FROM scratch\n%s%s%s", text, folded, end);
    struct build_plan p;
    int r = make(all, NULL, &p);

    if (r >= 0)
        build_plan_done(&p);
    return r;
}

TEST(plan_refuses_commands_that_linux_would_not_run)
{
    _cleanup_free_ char *longest = large_string("", COMMAND_STRING_MAX - 1);
    _cleanup_free_ char *longer = large_string("", COMMAND_STRING_MAX);
    _cleanup_strv_ char **env = large_command(COMMAND_MAX - 1000, true);
    _cleanup_free_ char *variables = strv_join(env, "\nENV "), *lines = large_folded(variables);
    _cleanup_free_ char *with_env = xasprintf("ENV %s\nRUN ", lines);
    _cleanup_free_ char *thousand = large_string("", 1000);

    CHECK(make_with("RUN ", longest, "\n") == 0);
    CHECK(make_with("RUN ", longer, "\n") == -ERR_LIMIT);
    CHECK(strncmp(err.msg, "line 2", 6) == 0 && strstr(err.msg, "131072") && err.hint);
    CHECK(make_with("RUN [\"x\", \"", longest, "\"]\n") == 0);
    CHECK(make_with("RUN [\"x\", \"", longer, "\"]\n") == -ERR_LIMIT);
    CHECK(make_with("RUN <<EOF\n#!/bin/sh\n", longer, "\nEOF\n") == 0); /* a file */
    CHECK(make_with("RUN <<EOF\n", longer, "\nEOF\n") == -ERR_LIMIT);
    CHECK(make_with(with_env, "true", "\n") == 0);
    CHECK(make_with(with_env, thousand, "\n") == -ERR_LIMIT);
    CHECK(strstr(err.msg, "variables are too large"));
    forget(0);
}

TEST(plan_has_not_too_many_copies_of_variables)
{
    _cleanup_strv_ char **env = large_command(1 << 20, true);
    _cleanup_free_ char *variables = strv_join(env, "\nENV ");
    struct buf steps = BUF_INIT(1 << 20);

    for (int i = 0; i < 300; i++)
        (void)!buf_append_str(&steps, "\nRUN x");
    CHECK(make_with("ENV ", variables, "\nRUN x\n") == 0);
    CHECK(make_with("ENV ", variables, buf_data(&steps)) == -ERR_LIMIT);
    buf_done(&steps);
    forget(0);
}

TEST(plan_knows_stages_built_on_host)
{
    struct build_plan p;

    CHECK(make("FROM host AS a\nCOPY x /usrlocal/\nFROM above AS b\nWORKDIR /opt\nFROM base AS c\n"
               "COPY x /usr/\nFROM a\nCOPY --from=b /opt/usr y /\nCOPY --from=c /usr/x /opt/\n",
               NULL, &p) >= 0);
    CHECK(p.stages[0].on_host && p.stages[1].on_host && !p.stages[2].on_host);
    CHECK(p.stages[3].on_host && p.stages[3].steps[0].from.on_host);
    CHECK(!p.stages[3].steps[1].from.on_host);
    CHECK(p.stages[0].steps[0].dest_at.line == 2 && p.stages[0].steps[0].dest_at.column == 8);
    build_plan_done(&p);
}

TEST(urls_give_file_names)
{
    static const struct {
        const char *url, *name;
    } cases[] = {
        {"https://h/a/b.tgz", "b.tgz"}, {"http://h:8/a/b/?q=/c#/d", "b"},
        {"https://h", "__unnamed__"},   {"https://h/?x", "__unnamed__"},
        {"https://h/.", "__unnamed__"}, {"https://h/a%2Fb%20c", "b c"},
        {"https://h/..", NULL},         {"https://h/a%2", NULL},
        {"https://h/%00", NULL},        {"https://h/a b", NULL},
        {"https:///x", NULL},           {"https://h/\xc3\xa4", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *name = NULL;

        CHECK(add_source_kind(cases[i].url) == ADD_SOURCE_URL);
        CHECK((add_source_file_name(cases[i].url, &name, NULL) >= 0) == !!cases[i].name);
        if (cases[i].name)
            CHECK_STR(name, cases[i].name);
    }
    CHECK(add_source_kind("a/b") == ADD_SOURCE_PATH && add_source_kind("https") == ADD_SOURCE_PATH);
    CHECK(add_source_kind("git@h:a/b") == ADD_SOURCE_GIT &&
          add_source_kind("ssh://h/a") == ADD_SOURCE_GIT);
    CHECK(add_source_kind("https://h/a.git") == ADD_SOURCE_GIT);
    CHECK(add_source_kind("https://h/a.git#v1:dir") == ADD_SOURCE_GIT);
    CHECK(add_source_kind("https://h/a.gitx") == ADD_SOURCE_URL);
}

TEST(plan_separates_urls_from_paths)
{
    struct build_plan p;
    const struct build_plan_step *s;

    CHECK(make("FROM scratch\nARG GIVEN\nADD --unpack x https://h/$GIVEN y /d/\nCOPY https://h/x "
               "/\n",
               NULL, &p) >= 0);
    s = p.stages[0].steps;
    CHECK(s[0].n_urls == 1 && s[0].unpack && s[0].unpack_urls && strv_len(s[0].sources) == 2);
    CHECK_STR(s[0].urls[0].url, "https://h/yes");
    CHECK_STR(s[0].urls[0].name, "yes");
    CHECK_STR(s[0].written[1], "https://h/yes");
    CHECK(s[1].n_urls == 0 && strv_len(s[1].sources) == 1);
    build_plan_done(&p);
}

TEST(plan_names_an_agent_that_may_be_missing)
{
    struct build_plan p;
    const struct build_plan_step *s;

    CHECK(make("FROM scratch\nWORKDIR /w\nRUN --mount=type=tmpfs,target=/t --mount=type=ssh "
               "--mount=type=ssh,id=b a\nRUN --mount=type=ssh,target=sock b\n"
               "ENV SSH_AUTH_SOCK=/mine\nRUN --mount=type=ssh,id=given,required c\n",
               NULL, &p) >= 0);
    s = p.stages[0].steps;
    CHECK_STR(strv_env_get(s[1].env, "SSH_AUTH_SOCK"), "/run/buildkit/ssh_agent.0");
    CHECK_STR(s[1].mounts[2].m.target, "/run/buildkit/ssh_agent.1");
    CHECK_STR(strv_env_get(s[2].env, "SSH_AUTH_SOCK"), "/w/sock");
    CHECK_STR(strv_env_get(s[3].env, "SSH_AUTH_SOCK"), "/mine");
    build_plan_done(&p);
}

TEST(plan_normalizes_destinations)
{
    static const char *const cases[][2] = {{"x", "/w/x"},   {".", "/w/"},   {"./", "/w/"},
                                           {"/", "/"},      {"../y", "/y"}, {"/a//b/../c", "/a/c"},
                                           {"a/.", "/w/a/"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *text = xasprintf("FROM scratch\nWORKDIR /w\nCOPY a %s\n", cases[i][0]);
        struct build_plan p;

        CHECK(make(text, NULL, &p) >= 0);
        CHECK_STR(p.stages[0].steps[1].dest, cases[i][1]);
        build_plan_done(&p);
    }
}

/* ---- sources ---- */

TEST(sources_match_below_their_folder_only)
{
    _cleanup_strv_ char **found = NULL, **none = NULL, **all = NULL;

    fresh();
    put("a/1.txt", "");
    put("a/2.txt", "");
    put("a/.h.txt", "");
    put("b/1.txt", "");
    CHECK(symlinkat("/../../../../etc", top, "out") == 0);
    CHECK(sources_match(top, "*/*.txt", &found, &err) >= 0);
    CHECK(strv_len(found) == 4);
    CHECK_STR(found[0], "a/.h.txt");
    CHECK_STR(found[3], "b/1.txt");
    CHECK(sources_match(top, "nothing*", &none, &err) >= 0 && !none);
    CHECK(forget(sources_match(top, "nothing", &none, &err)) == -ERR_NOT_FOUND);
    CHECK(forget(sources_match(top, "out/passwd", &none, &err)) == -ERR_NOT_FOUND);
    CHECK(forget(sources_match(top, "../../../../etc/passwd", &none, &err)) == -ERR_NOT_FOUND);
    CHECK(sources_match(top, "./a/", &all, &err) >= 0);
    CHECK_STR(all[0], "a");
}

/* ---- copying ---- */

static int copy(const char *source, const char *dest, int mode)
{
    char *sources[] = {(char *)source, NULL};
    struct copy_job job = {.sources = sources, .dest = dest, .mode = mode};
    _cleanup_close_ int from = -1, to = -1;

    if (dir_make_all(top, "to", 0755, NULL) < 0 || dir_open(top, "from", &from, NULL) < 0 ||
        dir_open(top, "to", &to, NULL) < 0)
        abort();
    job.from = from;
    job.to = to;
    return forget(copy_files(&job, &err));
}

TEST(copy_matches_buildkit)
{
    struct stat st;

    fresh();
    put("from/f", "f");
    put("from/d/x", "x");
    put("from/d/y/z", "z");
    CHECK(copy("f", "/new", -1) >= 0 && has("to/new", "f"));
    CHECK(copy("f", "/dir/", -1) >= 0 && has("to/dir/f", "f"));
    CHECK(copy("f", "/dir", -1) >= 0 && has("to/dir/f", "f"));
    CHECK(copy("f", "/p/q/r", 0750) >= 0 && has("to/p/q/r", "f"));
    CHECK(fstatat(top, "to/p/q/r", &st, 0) == 0 && (st.st_mode & 07777) == 0750);
    CHECK(copy("d", "/all", -1) >= 0 && has("to/all/x", "x") && has("to/all/y/z", "z"));
    CHECK(copy("d/*", "/some/", -1) >= 0 && has("to/some/x", "x") && has("to/some/z", "z"));
    CHECK(copy("d/*", "/several", -1) == -ERR_INVALID);
    CHECK(copy("f", "/all/y/", -1) >= 0 && has("to/all/y/f", "f"));
}

TEST(copy_stays_in_its_tree)
{
    struct stat st;

    fresh();
    put("from/f", "new");
    put("victim", "old");
    put("to/real/keep", "");
    CHECK(symlinkat("../victim", top, "to/link") == 0);
    CHECK(symlinkat("/real", top, "to/way") == 0);
    CHECK(symlinkat("../../../../../../../../etc/passwd", top, "from/leak") == 0);
    CHECK(copy("f", "/link", -1) >= 0 && has("victim", "old") && has("to/link", "new"));
    CHECK(copy("f", "/way/f", -1) >= 0 && has("to/real/f", "new"));
    CHECK(copy("f", "/../../out", -1) >= 0 && has("to/out", "new"));
    CHECK(fstatat(top, "out", &st, 0) < 0);
    CHECK(copy("leak", "/", -1) == -ERR_NOT_FOUND);
    CHECK(copy("f", "/real", -1) >= 0 && has("to/real/f", "new"));
}

TEST(copy_finds_owners_in_the_image)
{
    struct copy_owner o;

    fresh();
    put("etc/passwd", "root:x:0:0::/:\nbob:x:1000:1001::/:\n");
    put("etc/group", "users:x:100:\n");
    CHECK(copy_owner_find(top, "bob", &o, &err) >= 0 && o.uid == 1000 && o.gid == 1001);
    CHECK(copy_owner_find(top, "bob:users", &o, &err) >= 0 && o.uid == 1000 && o.gid == 100);
    CHECK(copy_owner_find(top, "7", &o, &err) >= 0 && o.uid == 7 && o.gid == 7 && o.given);
    CHECK(copy_owner_find(top, "7:8", &o, &err) >= 0 && o.gid == 8);
    CHECK(copy_owner_find(top, ":8", &o, &err) >= 0 && o.uid == 0 && o.gid == 8);
    CHECK(forget(copy_owner_find(top, "eve", &o, &err)) == -ERR_INVALID);
    CHECK(forget(copy_owner_find(top, "bob:eve", &o, &err)) == -ERR_INVALID);
    CHECK(forget(copy_owner_find(top, "65536", &o, &err)) == -ERR_INVALID);
}

/* ---- keys ---- */

static void key_of_context(char ret[static DIGEST_MAX])
{
    struct cache_key k;

    cache_key_begin(&k, "parent");
    if (cache_key_source(&k, top, "d", &err) < 0)
        abort();
    cache_key_end(&k, ret);
}

TEST(keys_follow_names_modes_and_contents_but_not_times)
{
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char first[DIGEST_MAX], again[DIGEST_MAX], other[DIGEST_MAX];

    fresh();
    put("context/d/f", "1");
    key_of_context(first);
    CHECK(utimensat(top, "context/d/f", old, 0) == 0);
    key_of_context(again);
    CHECK_STR(first, again);
    CHECK(fchmodat(top, "context/d/f", 0755, 0) == 0);
    key_of_context(other);
    CHECK(!STREQ(first, other));
    CHECK(fchmodat(top, "context/d/f", 0644, 0) == 0);
    put("context/d/f", "2");
    key_of_context(other);
    CHECK(!STREQ(first, other));
    put("context/d/f", "1");
    CHECK(renameat(top, "context/d/f", top, "context/d/g") == 0);
    key_of_context(other);
    CHECK(!STREQ(first, other));
}

TEST(keys_of_different_lists_differ)
{
    char *const ab[] = {(char *)"a", (char *)"b", NULL}, *const joined[] = {(char *)"ab", NULL};
    char x[DIGEST_MAX], y[DIGEST_MAX], z[DIGEST_MAX];
    struct cache_key k;

    cache_key_begin(&k, "p");
    cache_key_texts(&k, "n", ab);
    cache_key_end(&k, x);
    cache_key_begin(&k, "p");
    cache_key_texts(&k, "n", joined);
    cache_key_end(&k, y);
    cache_key_begin(&k, "p");
    cache_key_text(&k, "n", NULL);
    cache_key_end(&k, z);
    CHECK(!STREQ(x, y) && !STREQ(y, z));
}

/* ---- the store ---- */

TEST(cache_entries_need_their_layer)
{
    _cleanup_images_ struct images s = IMAGES_INIT;
    struct step_cache_entry e = {.layer = B, .created = (char *)"now"}, got = {0};

    fresh();
    CHECK(images_open(folder, &s, &err) >= 0);
    CHECK(step_cache_get(&s, A, &got) == 0);
    CHECK(step_cache_put(&s, A, &e, &err) >= 0);
    CHECK(step_cache_get(&s, A, &got) == 0); /* the layer does not exist */
    put("layers/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb/fs/f", "");
    CHECK(step_cache_get(&s, A, &got) == 1);
    CHECK_STR(got.layer, B);
    CHECK_STR(got.created, "now");
    free(got.created);
    e.layer[0] = '\0';
    CHECK(step_cache_put(&s, A, &e, &err) >= 0 && step_cache_get(&s, A, &got) == 1 && !*got.layer);
    free(got.created);
}

TEST(configurations_round_trip)
{
    static const char text[] =
        "{\"config\":{\"Env\":[\"A=1\"],\"Cmd\":[\"c\"],\"Entrypoint\":[\"e\"],\"Labels\":{\"l\":"
        "\"v=w\"},\"ExposedPorts\":{\"80/tcp\":{}},\"Volumes\":{\"/v\":{}},\"User\":\"u\","
        "\"WorkingDir\":\"/w\",\"StopSignal\":\"INT\",\"Shell\":[\"s\",\"-c\"],\"OnBuild\":[\"RUN "
        "x\"],\"Healthcheck\":{\"Test\":[\"CMD\",\"t\"],\"Interval\":5,\"Retries\":3}}}";
    char *layers[] = {(char *)A, NULL};
    struct dockerfile_config c = {0}, again = {0};
    _cleanup_free_ char *once = NULL, *twice = NULL;

    CHECK(config_json_parse(text, strlen(text), &c, &err) >= 0);
    CHECK_STR(c.labels[0], "l=v=w");
    CHECK_STR(config_get(&c, "A"), "1");
    CHECK(c.health.retries == 3 && strv_len(c.triggers) == 1);
    once = config_json_text(&c, layers, "2026-01-01T00:00:00Z", NULL);
    CHECK(config_json_parse(once, strlen(once), &again, &err) >= 0);
    twice = config_json_text(&again, layers, "2026-01-01T00:00:00Z", NULL);
    CHECK_STR(once, twice);
    CHECK(strstr(once, "\"diff_ids\":[\"" A "\"]"));
    config_done(&c);
    config_done(&again);
}

/* Otherwise both images would have the same id. */
TEST(an_image_on_host_names_its_base)
{
    char *above[] = {(char *)IMAGES_HOST_LAYER, (char *)A, NULL}, *plain[] = {(char *)A, NULL};
    struct dockerfile_config c = {0};
    _cleanup_free_ char *on_host = config_json_text(&c, above, NULL, NULL);
    _cleanup_free_ char *alone = config_json_text(&c, plain, NULL, NULL);
    _cleanup_json_ json_t *one = NULL, *other = NULL;
    _cleanup_strv_ char **layers = NULL, **own = NULL;

    CHECK(image_config_parse(on_host, strlen(on_host), &one, &err) >= 0 && images_is_on_host(one));
    CHECK(image_config_parse(alone, strlen(alone), &other, &err) >= 0 && !images_is_on_host(other));
    CHECK(json_equal(json_object_get(one, "layers"), json_object_get(other, "layers")));
    CHECK(images_layers(one, &layers, &err) >= 0 && strv_len(layers) == 2);
    CHECK(images_begin_with_host(layers) && STREQ(layers[1], A));
    CHECK(images_layers(other, &own, &err) >= 0 && strv_len(own) == 1);
    CHECK(!images_begin_with_host(own) && !images_begin_with_host(NULL));
}

TEST(hard_links_stay_hard_links)
{
    struct stat a, b, c;

    fresh();
    put("from/d/a", "x");
    put("from/d/sub/c", "y");
    CHECK(linkat(top, "from/d/a", top, "from/d/b", 0) == 0);
    CHECK(linkat(top, "from/d/a", top, "from/d/sub/z", 0) == 0);
    CHECK(copy("d", "/copied", -1) >= 0);
    CHECK(fstatat(top, "to/copied/a", &a, 0) == 0 && fstatat(top, "to/copied/b", &b, 0) == 0);
    CHECK(fstatat(top, "to/copied/sub/z", &c, 0) == 0);
    CHECK(a.st_ino == b.st_ino && b.st_ino == c.st_ino && a.st_nlink == 3);
    CHECK(fstatat(top, "to/copied/sub/c", &c, 0) == 0 && c.st_nlink == 1);
}

TEST(equal_layers_are_mounted_once)
{
    char *layers[] = {(char *)A, (char *)B, (char *)A, NULL};
    _cleanup_strv_ char **stack = images_stack(layers);

    CHECK(strv_len(stack) == 2);
    CHECK_STR(stack[0], A);
    CHECK_STR(stack[1], B);
}

TEST(layers_are_cleaned_up)
{
    _cleanup_close_ int dir = -1;
    uint64_t bytes = 0;
    struct stat st;
    char value[8];

    fresh();
    put("l/d/f", "1234");
    CHECK(dir_open(top, "l", &dir, &err) >= 0);
    CHECK(mkfifoat(dir, "d/pipe", 0600) == 0);
    CHECK(whiteout_make(dir, "gone", &err) >= 0);
    {
        _cleanup_close_ int f = openat(dir, "d/f", O_RDONLY | O_CLOEXEC);

        if (fsetxattr(f, "user.overlay.origin", "x", 1, 0) < 0)
            SKIP("no attributes here");
        CHECK(fsetxattr(f, "user.mine", "x", 1, 0) == 0);
        CHECK(layer_cleanup(dir, &bytes, &err) >= 0);
        CHECK(fgetxattr(f, "user.overlay.origin", value, sizeof(value)) < 0);
        CHECK(fgetxattr(f, "user.mine", value, sizeof(value)) == 1);
    }
    CHECK(bytes == 4);
    CHECK(fstatat(dir, "d/pipe", &st, 0) < 0 && fstatat(dir, "gone", &st, 0) == 0);
}

TEST(placeholders_are_paths_that_the_layers_lack)
{
    static const char low[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static const char high[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    char *layers[] = {(char *)A, (char *)B, NULL};
    struct images s = {.lock = -1};
    struct workspace w = {.store = &s};
    struct mount_placeholders placeholders = {0};
    char path[128];
    struct stat st;
    int fs;

    fresh();
    s.dir = w.dir = top;
    snprintf(path, sizeof(path), "layers/%s/fs/root/.cache/f", low);
    put(path, "");
    snprintf(path, sizeof(path), "layers/%s/fs/root/x", high);
    put(path, "");
    mount_placeholders_note(&placeholders, &w, layers, "/root/.cache/pip");
    CHECK(strv_len(placeholders.paths) == 1);
    CHECK_STR(placeholders.paths[0], "root/.cache/pip");
    snprintf(path, sizeof(path), "layers/%s/fs/root", high);
    fs = openat(top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(whiteout_make(fs, ".cache", &err) >= 0);
    fd_close(fs);
    mount_placeholders_note(&placeholders, &w, layers, "/root/.cache/pip");
    CHECK(strv_len(placeholders.paths) == 2); /* the upper layer hides it */
    put("3/fs/root/.cache/pip/kept", "");
    mount_placeholders_remove(&placeholders, &w, 3);
    CHECK(fstatat(top, "3/fs/root/.cache/pip/kept", &st, 0) == 0);
    CHECK(unlinkat(top, "3/fs/root/.cache/pip/kept", 0) == 0);
    mount_placeholders_remove(&placeholders, &w, 3);
    CHECK(fstatat(top, "3/fs/root/.cache/pip", &st, 0) < 0);
    CHECK(fstatat(top, "3/fs/root", &st, 0) == 0);
    mount_placeholders_done(&placeholders);
    top = fd_close(top);
    rmtree(AT_FDCWD, folder, NULL);
}

/* ---- stages ---- */

/* Four stages: 1 and 2 need 0, and nothing needs 3. */
struct stages_seen {
    struct daemon_conn *conn;
    char order[8]; /* of the ends, as this process knows it */
    long failing, dying;
    char events[64]; /* that the daemon got: "CONNECTION:STAGE " for each */
};

static bool three_are_needed(void *arg, size_t stage)
{
    (void)arg;
    return stage < 3;
}

static bool first_is_needed(void *arg, size_t stage, size_t earlier)
{
    (void)arg;
    return stage > 0 && earlier == 0;
}

static int stage_build(void *arg, size_t stage, struct err *e)
{
    struct stages_seen *t = arg;

    daemon_conn_send_event(t->conn, json_pack("{s:i}", "step", (int)stage));
    if ((long)stage == t->failing)
        return err_set(e, ERR_INVALID, "stage %zu has failed", stage);
    if ((long)stage == t->dying)
        raise(SIGKILL);
    if ((t->failing >= 0 || t->dying >= 0) && stage) /* runs until it is killed */
        pause();
    t->order[strlen(t->order)] = (char)('0' + stage);
    return 0;
}

static json_t *stage_result(void *arg, size_t stage)
{
    (void)stage;
    return json_pack("{s:s}", "seen", ((const struct stages_seen *)arg)->order);
}

static int stage_on_result(void *arg, size_t stage, const json_t *result, struct err *e)
{
    struct stages_seen *t = arg;

    if (*json_string_value(json_object_get(result, "seen")) != '0')
        return err_set(e, ERR_SYSTEM, "stage %zu did not wait", stage);
    t->order[strlen(t->order)] = (char)('0' + stage);
    return 0;
}

_noreturn_ static void serve_stage(int conn, int number, int out)
{
    struct json_lines lines = JSON_LINES_INIT(conn);
    json_t *doc;

    while (json_lines_next(&lines, &doc, NULL) > 0) {
        if (json_object_get(doc, "flush"))
            json_lines_write(&lines, json_object());
        else
            dprintf(out, "%d:%lld ", number, json_integer_value(json_object_get(doc, "step")));
        json_decref(doc);
    }
    _exit(0);
}

/* In place of the daemon: gives connections, and reports their events in `out`. */
_noreturn_ static void give_connections(int control, int out)
{
    int ends[2];
    char byte;

    for (int i = 0; read(control, &byte, 1) == 1; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
            _exit(1);
        if (fork() == 0) {
            fd_close(control);
            fd_close(ends[1]);
            serve_stage(ends[0], i, out);
        }
        fd_close(ends[0]);
        fd_send(control, "", 1, &ends[1], 1, 0);
        fd_close(ends[1]);
    }
    while (wait(NULL) > 0)
        ;
    _exit(0);
}

static int run_stages(struct stages_seen *t)
{
    struct daemon_conn conn = DAEMON_CONN_INIT(-1);
    const struct stages s = {
        &conn, t, 4, three_are_needed, first_is_needed, stage_build, stage_result, stage_on_result};
    int control[2], out[2], r;
    size_t len = 0;
    ssize_t n;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, control) < 0 || pipe(out) < 0)
        abort();
    pid = fork();
    if (pid == 0) {
        fd_close(control[1]);
        give_connections(control[0], out[1]);
    }
    fd_close(control[0]);
    fd_close(out[1]);
    t->conn = &conn;
    conn.control = control[1];
    r = daemon_conn_open(&conn, &err);
    r = r < 0 ? r : stages_run(&s, &err);
    daemon_conn_done(&conn);
    fd_close(control[1]);
    while ((n = read(out[0], t->events + len, sizeof(t->events) - 1 - len)) > 0)
        len += (size_t)n;
    fd_close(out[0]);
    waitpid(pid, NULL, 0);
    return r;
}

TEST(stages_wait_for_the_stages_they_need)
{
    struct stages_seen t = {.failing = -1, .dying = -1};

    CHECK(run_stages(&t) >= 0);
    CHECK(strlen(t.order) == 3 && t.order[0] == '0');
}

TEST(stages_that_run_at_once_have_connections_of_their_own)
{
    struct stages_seen t = {.failing = -1, .dying = -1};

    CHECK(run_stages(&t) >= 0);
    CHECK(strncmp(t.events, "0:0 ", 4) == 0); /* runs alone: in this process */
    CHECK(strlen(t.events) == 12);
    CHECK((strstr(t.events, "1:1 ") && strstr(t.events, "2:2 ")) ||
          (strstr(t.events, "1:2 ") && strstr(t.events, "2:1 ")));
}

TEST(a_stage_that_fails_ends_the_others)
{
    struct stages_seen t = {.failing = 1, .dying = -1};

    CHECK(run_stages(&t) == -ERR_INVALID);
    CHECK_STR(err.msg, "stage 1 has failed");
    forget(0);
    CHECK_STR(t.order, "0");
    CHECK(strstr(t.events, ":1 ")); /* the daemon has its events, too */
    CHECK(waitpid(-1, NULL, WNOHANG) < 0);
}

TEST(a_stage_whose_process_dies_ends_the_others)
{
    struct stages_seen t = {.failing = -1, .dying = 2};

    CHECK(run_stages(&t) == -ERR_SYSTEM);
    CHECK_STR(err.msg, "the process of a stage has ended without a result");
    forget(0);
    CHECK_STR(t.order, "0");
    CHECK(waitpid(-1, NULL, WNOHANG) < 0);
}
