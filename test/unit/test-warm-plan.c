/* The plan of `cache warm`: command, files and spec. */
#include "daemon/core/caches/warm-plan.h"

#include "daemon/core/caches/warm.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"
#include "tap.h"

#define _cleanup_plan_ _cleanup_(warm_plan_done)

/* Reads the request from JSON text with ' for ". */
static int plan(const char *text, struct warm_plan *ret, struct err *err)
{
    _cleanup_free_ char *real = xstrdup(text);
    _cleanup_json_ json_t *request = NULL;

    *ret = (struct warm_plan){.files = -1};
    for (char *p = real; *p; p++)
        if (*p == '\'')
            *p = '"';
    request = json_loads(real, 0, NULL);
    return request ? warm_plan_read(request, ret, err) : 1;
}

static bool refuses(const char *text, int code, const char *words)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_plan_ struct warm_plan p;
    bool fine = plan(text, &p, &err) == -code && err.msg && strstr(err.msg, words);

    if (!fine)
        printf("# %s: %s\n", text, err.msg ? err.msg : "taken");
    return fine && !p.argv && !p.spec && p.files == -1;
}

static ssize_t read_fd(void *arg, void *data, size_t len)
{
    return fd_read_full(*(const int *)arg, data, len);
}

/* The text of warm/NAME in the plan's archive, which is read to its end; NULL: no such file. */
static char *file_of(struct warm_plan *p, const char *name)
{
    _cleanup_free_ char *path = xasprintf(WARM_FOLDER "/%s", name);
    struct tar_reader r;
    struct tar_entry e;
    char *found = NULL;

    tar_reader_init(&r, read_fd, &p->files);
    while (tar_next(&r, &e, NULL) > 0) {
        char *text = xmalloc(e.size + 1);
        ssize_t n = tar_read(&r, text, e.size, NULL);

        text[n < 0 ? 0 : n] = '\0';
        if (STREQ(e.path, path) && !found)
            found = TAKE_PTR(text);
        free(text);
    }
    return found;
}

TEST(packages_follow_the_command)
{
    _cleanup_plan_ struct warm_plan p;
    _cleanup_free_ char *line = NULL;

    CHECK(plan("{'tool': 'pip', 'packages': ['requests==2.32.3', 'a[b]>=1; x']}", &p, NULL) == 0);
    line = strv_join(p.argv, " ");
    CHECK(strncmp(line, "python3 -m pip download ", 24) == 0);
    CHECK(strv_contains(p.argv, "--only-binary=:all:"));
    CHECK(strstr(line, " requests==2.32.3 a[b]>=1; x"));
    CHECK_STR(p.tool, "pip");
}

TEST(every_recipe_runs_no_code_of_a_package)
{
    static const char *const tools[] = {"pip", "uv", "npm", "pnpm", "yarn"};

    for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
        _cleanup_free_ char *text = xasprintf("{'tool': '%s', 'packages': ['x']}", tools[i]);
        _cleanup_plan_ struct warm_plan p;

        CHECK(plan(text, &p, NULL) == 0);
        CHECK(strv_contains(p.argv, "--only-binary=:all:") ||
              strv_contains(p.argv, "--ignore-scripts"));
    }
}

TEST(the_sandbox_has_the_package_cache_and_one_tool_cache)
{
    _cleanup_plan_ struct warm_plan p;
    const json_t *caches;

    CHECK(plan("{'tool': 'npm', 'packages': ['@a/b@^1'], 'image': 'i', 'engine': 'docker'}", &p,
               NULL) == 0);
    CHECK_STR(json_string_value(json_object_get(p.spec, "network")), "packages");
    caches = json_object_get(p.spec, "caches");
    CHECK(json_object_size(caches) == 2);
    CHECK_STR(json_string_value(json_object_get(caches, "all")), "off");
    CHECK_STR(json_string_value(json_object_get(caches, "npm")), "layered");
    CHECK_STR(json_string_value(json_object_get(p.spec, "image")), "i");
    CHECK_STR(json_string_value(json_object_get(p.spec, "engine")), "docker");
    CHECK(json_object_get(json_object_get(p.spec, "labels"), WARM_LABEL));
    CHECK(json_integer_value(json_object_get(p.spec, "rm_after_ms")) > 0);
    CHECK(!json_object_get(p.spec, "mounts"));
}

TEST(invalid_requests)
{
    CHECK(refuses("{}", ERR_INVALID, "'tool' is missing"));
    CHECK(refuses("{'tool': 'pipp', 'packages': ['x']}", ERR_INVALID, "pipp"));
    CHECK(refuses("{'tool': 'go', 'packages': ['x']}", ERR_UNSUPPORTED, "cannot be warmed"));
    CHECK(refuses("{'tool': 'pip'}", ERR_INVALID, "no package"));
    CHECK(refuses("{'tool': 'pip', 'packages': []}", ERR_INVALID, "no package"));
    CHECK(refuses("{'tool': 'pip', 'packages': [1]}", ERR_INVALID, "packages"));
    CHECK(refuses("{'tool': 'pip', 'package': ['x']}", ERR_INVALID, "package"));
    CHECK(refuses("{'tool': 'npm', 'requirements': 'x'}", ERR_INVALID,
                  "does not support requirements"));
    CHECK(refuses("{'tool': 'pip', 'package_lock': '{}'}", ERR_INVALID,
                  "does not support package-lock"));
    CHECK(refuses("{'tool': 'npm', 'package_lock': '{}', 'packages': ['x']}", ERR_INVALID,
                  "cannot be combined"));
    CHECK(refuses("{'tool': 'npm', 'package_lock': '{'}", ERR_INVALID, "package-lock"));
    CHECK(refuses("{'tool': 'npm', 'package_lock': '{}'}", ERR_INVALID, "has no 'packages'"));
}

TEST(invalid_names)
{
    static const char *const names[] = {
        "",      "-r",  "--index-url=x", " x", "x @ http://h/", "a:b",
        "x\\ny", "x$y", "http://h",      ".",  "x\\u00e4"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *text =
            xasprintf("{'tool': 'pip', 'packages': ['fine', '%s']}", names[i]);

        CHECK(refuses(text, ERR_INVALID, "invalid package"));
    }
    CHECK(refuses("{'tool': 'npm', 'packages': ['x[extra]']}", ERR_INVALID, "invalid package"));
}

TEST(too_many_and_too_long)
{
    _cleanup_json_ json_t *request = json_pack("{s:s, s:[]}", "tool", "pip", "packages");
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_plan_ struct warm_plan p = {.files = -1};
    char name[300];

    for (int i = 0; i < 501; i++)
        json_array_append_new(json_object_get(request, "packages"), json_string("x"));
    CHECK(warm_plan_read(request, &p, &err) == -ERR_INVALID && strstr(err.msg, "limit 500"));
    err_done(&err);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    json_object_set_new(request, "packages", json_pack("[s]", name));
    CHECK(warm_plan_read(request, &p, &err) == -ERR_INVALID && strstr(err.msg, "invalid package"));
}

TEST(requirements_keep_digests_and_lose_comments)
{
    _cleanup_plan_ struct warm_plan p;
    _cleanup_free_ char *text = NULL;

    CHECK(plan("{'tool': 'pip', 'requirements': '# coding: utf-7\\r\\na==1 --hash=sha256:00  # "
               "\\u00e4\\r\\n"
               "\\tb\\\\\\n  --hash=sha256:11\\nc#d'}",
               &p, NULL) == 0);
    CHECK(strv_contains(p.argv, "--requirement=requirements.txt"));
    text = file_of(&p, "requirements.txt");
    CHECK_STR(text, "\na==1 --hash=sha256:00  \n\tb\\\n  --hash=sha256:11\nc#d\n");
}

TEST(requirements_with_options)
{
    static const char *const lines[] = {
        "-r other.txt",
        "a\\n--no-binary :all:",
        "a --global-option=x",
        "\\t-e .",
        "a\\\\\\n-i x",
        "a -\\\\\\n-pre",
        "--hash",
        "a --hash",
    };

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        _cleanup_free_ char *text = xasprintf("{'tool': 'pip', 'requirements': '%s'}", lines[i]);

        CHECK(refuses(text, ERR_INVALID, "option '"));
    }
}

/* Python ends a line at each of these characters. */
TEST(requirements_with_line_ends_of_python)
{
    static const char *const ends[] = {"\\r",     "\\u000b", "\\u000c",
                                       "\\u001c", "\\u0085", "\\u2028"};

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        _cleanup_free_ char *plain =
            xasprintf("{'tool': 'pip', 'requirements': 'a%s--no-binary=:all:'}", ends[i]);
        _cleanup_free_ char *hidden =
            xasprintf("{'tool': 'pip', 'requirements': 'a # b%s--no-binary=:all:'}", ends[i]);
        _cleanup_plan_ struct warm_plan p;
        _cleanup_free_ char *text = NULL;

        CHECK(refuses(plain, ERR_INVALID, "line 1 of the requirements"));
        CHECK(plan(hidden, &p, NULL) == 0);
        text = file_of(&p, "requirements.txt");
        CHECK_STR(text, "a \n");
    }
}

TEST(a_lock_file_loses_its_addresses)
{
    _cleanup_json_ json_t *request = NULL, *lock = NULL, *package = NULL;
    _cleanup_plan_ struct warm_plan p = {.files = -1}, again = {.files = -1};
    _cleanup_free_ char *text = NULL, *made = NULL;
    const json_t *entry;

    request = json_pack("{s:s, s:s}", "tool", "npm", "package_lock",
                        "{\"lockfileVersion\": 3, \"packages\": {\"\": {\"name\": \"n\", "
                        "\"dependencies\": {\"a\": \"^1\"}},"
                        "\"node_modules/a\": {\"version\": \"1.0.0\", \"resolved\": "
                        "\"http://h/a.tgz\", \"integrity\": \"sha512-x\"},"
                        "\"node_modules/b\": {\"resolved\": \"packages/b\", \"link\": true}}}");
    CHECK(warm_plan_read(request, &p, NULL) == 0 && warm_plan_read(request, &again, NULL) == 0);
    CHECK(STREQ(p.argv[0], "npm") && STREQ(p.argv[1], "ci"));
    text = file_of(&p, "package-lock.json");
    made = file_of(&again, "package.json");
    CHECK(text && made);
    lock = json_loads(text, 0, NULL);
    entry = json_object_get(json_object_get(lock, "packages"), "node_modules/a");
    CHECK(!json_object_get(entry, "resolved"));
    CHECK_STR(json_string_value(json_object_get(entry, "integrity")), "sha512-x");
    entry = json_object_get(json_object_get(lock, "packages"), "node_modules/b");
    CHECK_STR(json_string_value(json_object_get(entry, "resolved")), "packages/b");
    package = json_loads(made, 0, NULL);
    CHECK_STR(json_string_value(json_object_get(package, "name")), "n");
    CHECK(json_object_get(json_object_get(package, "dependencies"), "a"));
}
