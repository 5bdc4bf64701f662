/* Specs: the defaults, the check of every field, the stored form and the hash. */
#include "daemon/core/sandbox/command-check.h"
#include "daemon/core/sandbox/spec.h"
#include "large-command.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static char *roots[] = {(char *)"/srv", (char *)"/home/me", NULL};

/* Applies JSON text to the defaults. */
static int apply(struct sandbox_spec *spec, const char *text, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *engine = NULL;
    int r;

    spec_defaults(spec);
    r = json_parse("test", text, strlen(text), &doc, err);
    return r < 0 ? r : spec_apply(spec, &engine, doc, roots, err);
}

TEST(defaults)
{
    struct sandbox_spec s;

    CHECK(apply(&s, "{}", NULL) == 0);
    CHECK(!s.image && !s.image_digest && !s.runtime && s.n_caches == 0);
    CHECK(s.memory == GIB(4) && s.cpu_milli == 2000 && s.pids == 300 && s.disk == 0);
    CHECK(s.tmp_size == MIB(128) && s.run_size == MIB(32) && s.scratch_size == MIB(512));
    CHECK(s.network == SPEC_NETWORK_PACKAGES && s.asked == 0 && s.idle_stop == 0);
    CHECK_STR(s.user, "agent");
    CHECK_STR(s.workdir, "/home/agent");
    sandbox_spec_done(&s);
}

TEST(every_field)
{
    static const char text[] =
        "{\"engine\":\"fake\",\"image\":\"host\",\"limits\":{\"memory\":104857600,\"cpus\":0.5,"
        "\"pids\":10,\"disk\":1073741824,\"nofile\":64},\"network\":\"none\",\"tmpfs\":{\"tmp\":"
        "1048576,\"run\":65536,\"scratch\":2097152},\"user\":\"1000:1000\",\"workdir\":\"/w\","
        "\"env\":{\"A\":\"1\",\"B\":\"x=y\"},\"labels\":{\"a.b/c\":\"d\"},\"mounts\":[{\"source\":"
        "\"/srv/x\",\"target\":\"/mnt/x\",\"read_only\":true}],\"idle_stop_ms\":1500}";
    struct sandbox_spec s;

    CHECK(apply(&s, text, NULL) == 0);
    CHECK(s.memory == 104857600 && s.cpu_milli == 500 && s.pids == 10 && s.nofile == 64);
    CHECK(s.disk == GIB(1) && s.network == SPEC_NETWORK_NONE && s.run_size == 65536);
    CHECK(s.asked == (LIMIT_MEMORY | LIMIT_CPUS | LIMIT_PIDS | LIMIT_DISK | LIMIT_NOFILE));
    CHECK_STR(strv_env_get(s.env, "B"), "x=y");
    CHECK_STR(s.labels[0], "a.b/c=d");
    CHECK(s.n_mounts == 1 && s.mounts[0].read_only);
    CHECK(s.idle_stop == 1500000);
    sandbox_spec_done(&s);
}

/* text, and words that the message must contain */
static const struct {
    const char *text, *word, *word2;
} bad[] = {
    {"{\"memroy\":1}", "memroy", NULL},
    {"{\"limits\":{\"memroy\":1}}", "limits.memroy", NULL},
    {"{\"limits\":{\"memory\":1}}", "limits.memory", "between 6 MiB and 1 PiB"},
    {"{\"limits\":{\"memory\":-5}}", "limits.memory", NULL},
    {"{\"limits\":{\"memory\":\"4G\"}}", "limits.memory", NULL},
    {"{\"limits\":{\"pids\":1}}", "limits.pids", "4194304"},
    {"{\"limits\":{\"pids\":4194305}}", "limits.pids", NULL},
    {"{\"limits\":{\"cpus\":0}}", "limits.cpus", "0"},
    {"{\"limits\":{\"cpus\":\"2\"}}", "limits.cpus", NULL},
    {"{\"limits\":{\"cpus\":2000}}", "limits.cpus", "1024"},
    {"{\"limits\":{\"nofile\":0}}", "limits.nofile", NULL},
    {"{\"limits\":[]}", "limits", NULL},
    {"{\"network\":\"sometimes\"}", "network", "sometimes"},
    {"{\"image\":\"no pe\"}", "image", "no pe"},
    {"{\"image\":\"../x\"}", "image", "../x"},
    {"{\"image\":\"\"}", "image", NULL},
    {"{\"image_digest\":\"x\"}", "image_digest", NULL},
    {"{\"runtime\":\"a b\"}", "runtime", "a b"},
    {"{\"caches\":{\"pipp\":\"off\"}}", "caches", "pipp"},
    {"{\"caches\":{\"pip\":\"on\"}}", "caches", "on"},
    {"{\"caches\":{\"pip\":1}}", "caches.pip", NULL},
    {"{\"user\":\"4294967296\"}", "user", "4294967296"},
    {"{\"user\":\"-1\"}", "user", "-1"},
    {"{\"user\":\" 0\"}", "user", NULL},
    {"{\"user\":\"1000:\"}", "user", NULL},
    {"{\"workdir\":\"relative\"}", "workdir", "relative"},
    {"{\"workdir\":\"/a/../b\"}", "workdir", NULL},
    {"{\"workdir\":\"/a//b\"}", "workdir", NULL},
    {"{\"workdir\":\"/a/.\"}", "workdir", NULL},
    {"{\"workdir\":\"/a\\nb\"}", "workdir", NULL},
    {"{\"env\":{\"1A\":\"x\"}}", "env", NULL},
    {"{\"env\":{\"A\":1}}", "env.A", NULL},
    {"{\"env\":{\"A=B\":\"c\"}}", "env", "A=B"},
    {"{\"labels\":{\"a b\":\"x\"}}", "labels", "a b"},
    {"{\"tmpfs\":{\"tmp\":1}}", "tmpfs.tmp", NULL},
    {"{\"tmpfs\":{\"home\":1048576}}", "tmpfs.home", NULL},
    {"{\"mounts\":[{\"source\":\"/srv\"}]}", "mounts[0]", NULL},
    {"{\"mounts\":[{\"source\":\"/etc\",\"target\":\"/x\"}]}", "/etc", NULL},
    {"{\"mounts\":[{\"source\":\"/srvx\",\"target\":\"/x\"}]}", "/srvx", NULL},
    {"{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/proc/x\"}]}", "/proc/x", NULL},
    {"{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/\"}]}", "target", NULL},
    {"{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/x\",\"ro\":true}]}", "ro", NULL},
    {"{\"idle_stop_ms\":-1}", "idle_stop_ms", NULL},
    {"{\"isolation\":\"Strict\"}", "isolation", "'Strict'"},
    {"{\"isolation\":\"strict\",\"caches\":{\"all\":\"layered\"}}", "'all'", "layered"},
    {"{\"isolation\":\"strict\",\"caches\":{\"npm\":\"shared:g\"}}", "'npm'", "shared"},
    {"{\"isolation\":\"confined\",\"caches\":{\"pip\":\"layered\"}}", "'pip'", "confined"},
    {"{\"isolation\":\"confined\",\"tmpfs\":{\"tmp\":1048576}}", "tmpfs", "confined"},
    {"{\"isolation\":\"confined\",\"ports\":[80]}", "ports[0]", "1024"},
    {"{\"isolation\":\"confined\",\"ports\":[3000,65536]}", "ports[1]", "65535"},
    {"{\"isolation\":\"confined\",\"ports\":[\"3000\"]}", "ports[0]", NULL},
    {"{\"ports\":[3000]}", "ports", "confined"},
    {"[]", "object", NULL},
};

TEST(image_runtime_and_caches)
{
    static const char text[] = "{\"image\":\"reg.example:5000/a/b:1\",\"runtime\":\"runsc\","
                               "\"caches\":{\"pip\":\"shared\",\"npm\":\"off\"}}";
    _cleanup_free_ char *stored = NULL;
    struct sandbox_spec s, back;
    char one[65], two[65];

    CHECK(apply(&s, text, NULL) == 0);
    CHECK_STR(s.image, "reg.example:5000/a/b:1");
    CHECK_STR(s.runtime, "runsc");
    CHECK(s.n_caches == 2);
    spec_hash(&s, "docker", one);
    s.image_digest = xstrdup("sha256:1");
    spec_hash(&s, "docker", two);
    CHECK(strcmp(one, two) != 0); /* the same name with another image is another sandbox */
    stored = spec_to_text(&s);
    CHECK(spec_from_text(stored, &back, NULL) == 0);
    spec_hash(&back, "docker", one);
    CHECK_STR(one, two);
    sandbox_spec_done(&back);
    sandbox_spec_done(&s);
}

static void hash_of(const char *text, char ret[static 65])
{
    struct sandbox_spec s;

    CHECK(apply(&s, text, NULL) == 0);
    spec_hash(&s, "native", ret);
    sandbox_spec_done(&s);
}

/* The hashes are those of the version before. Sandboxes that may have left set-id files in a folder
 * of the host are made again; all others stay as they are. */
TEST(only_sandboxes_with_writable_mounts_are_made_again)
{
    static const struct {
        const char *text, *before;
        bool same;
    } specs[] = {
        {"{}", "0c5a5208b9dfba4e8ea17dc9820699d145976d691c33b5c9133a7eb1190c2cea", true},
        {"{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/x\",\"read_only\":true}]}",
         "b1a68a2ed4dc3312bb13a54874f557c1d2d32f3565a83bfdcfd643e29aa3374a", true},
        {"{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/x\"}]}",
         "5e0d6f34f24d39f2eecd1cf644e8e723006081ad91c6082c9a02d7230f21de75", false},
    };
    char now[65];

    for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
        hash_of(specs[i].text, now);
        CHECK(specs[i].same == STREQ(now, specs[i].before));
    }
}

TEST(no_root_squash_is_kept_and_hashed)
{
    static const char on[] =
        "{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/x\",\"no_root_squash\":true}]}";
    _cleanup_free_ char *stored = NULL;
    struct sandbox_spec s, back;
    char with[65], without[65];

    CHECK(apply(&s, on, NULL) == 0 && s.mounts[0].no_root_squash);
    stored = spec_to_text(&s);
    CHECK(spec_from_text(stored, &back, NULL) == 0 && back.mounts[0].no_root_squash);
    hash_of(on, with);
    hash_of("{\"mounts\":[{\"source\":\"/srv\",\"target\":\"/x\"}]}", without);
    CHECK(strcmp(with, without) != 0);
    sandbox_spec_done(&back);
    sandbox_spec_done(&s);
}

TEST(strict_isolation_is_another_sandbox_with_caches_of_its_own)
{
    _cleanup_free_ char *stored = NULL;
    char usual[65], named[65], strict[65];
    struct sandbox_spec s, back;

    hash_of("{}", usual);
    hash_of("{\"isolation\":\"shared\"}", named);
    CHECK_STR(usual, named); /* sandboxes from before this field existed keep their hash */
    hash_of("{\"caches\":{\"all\":\"private\"}}", named);
    hash_of("{\"isolation\":\"strict\"}", strict);
    CHECK(strcmp(named, strict) != 0);
    CHECK(apply(&s, "{\"isolation\":\"strict\",\"caches\":{\"pip\":\"off\"}}", NULL) == 0);
    CHECK(s.isolation == SPEC_ISOLATION_STRICT && s.cache_mode == CACHE_PRIVATE);
    stored = spec_to_text(&s);
    CHECK(spec_from_text(stored, &back, NULL) == 0 && back.isolation == SPEC_ISOLATION_STRICT);
    sandbox_spec_done(&back);
    sandbox_spec_done(&s);
}

TEST(confined_isolation_has_ports_and_no_tmpfs)
{
    static const char more[] = "{\"ports\":[4000,3000],\"clear\":[\"ports=8080\"]}";
    _cleanup_free_ char *stored = NULL;
    _cleanup_json_ json_t *doc = NULL;
    struct sandbox_spec s, back;
    const char *engine = NULL;

    CHECK(apply(&s, "{\"isolation\":\"confined\",\"ports\":[3000,8080]}", NULL) == 0);
    CHECK(sandbox_spec_is_confined(&s) && s.cache_mode == CACHE_PRIVATE && s.n_ports == 2);
    CHECK(json_parse("test", more, strlen(more), &doc, NULL) >= 0);
    CHECK(spec_apply(&s, &engine, doc, roots, NULL) == 0);
    CHECK(s.n_ports == 2 && s.ports[0] == 4000 && s.ports[1] == 3000);
    stored = spec_to_text(&s);
    CHECK(!strstr(stored, "tmpfs"));
    CHECK(spec_from_text(stored, &back, NULL) == 0 && sandbox_spec_is_confined(&back));
    CHECK(back.n_ports == 2 && back.ports[0] == 4000);
    sandbox_spec_done(&back);
    sandbox_spec_done(&s);
}

TEST(bad_specs_name_field_and_value_and_change_nothing)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct sandbox_spec s;

        printf("# %s\n", bad[i].text);
        CHECK(apply(&s, bad[i].text, &err) < 0);
        CHECK(err.msg && strstr(err.msg, bad[i].word));
        CHECK(!bad[i].word2 || strstr(err.msg, bad[i].word2));
        CHECK(s.memory == GIB(4) && s.asked == 0 && s.n_mounts == 0);
        sandbox_spec_done(&s);
    }
}

TEST(values_of_the_environment_are_not_echoed)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox_spec s;

    CHECK(apply(&s, "{\"env\":{\"BAD KEY\":\"sek-987\"}}", &err) < 0);
    CHECK(!strstr(err.msg, "sek-987"));
    sandbox_spec_done(&s);
}

static json_t *env_patch(char *const *env)
{
    json_t *o = json_object();

    for (; *env; env++) {
        _cleanup_free_ char *name = xstrndup(*env, strcspn(*env, "="));

        json_object_set_new(o, name, json_string(*env + strlen(name) + 1));
    }
    return json_pack("{s:o}", "env", o);
}

static int apply_env(struct sandbox_spec *s, char *const *env, struct err *err)
{
    _cleanup_json_ json_t *patch = env_patch(env);
    const char *engine = NULL;

    return spec_apply(s, &engine, patch, NULL, err);
}

TEST(variables_may_be_as_large_as_linux_takes)
{
    _cleanup_free_ char *longest = large_string("BIG=", COMMAND_STRING_MAX - 1);
    _cleanup_free_ char *longer = large_string("BIG=", COMMAND_STRING_MAX);
    _cleanup_strv_ char **all = large_command(COMMAND_MAX, true);
    _cleanup_strv_ char **half = large_command(COMMAND_MAX / 2, true);
    char *more[] = {(char *)"MORE=", NULL};
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox_spec s;

    spec_defaults(&s);
    CHECK(apply_env(&s, (char *[]){longer, NULL}, &err) == -ERR_INVALID);
    CHECK(strstr(err.msg, "'BIG'") && strstr(err.msg, "131072") && strstr(err.msg, "131071"));
    CHECK(!strstr(err.msg, "xxx") && err.hint && !s.env);
    CHECK(apply_env(&s, (char *[]){longest, NULL}, NULL) == 0);
    sandbox_spec_done(&s);
    spec_defaults(&s);
    CHECK(apply_env(&s, all, NULL) == 0 && strv_equal(s.env, all));
    err_done(&err);
    CHECK(apply_env(&s, more, &err) == -ERR_INVALID && strv_equal(s.env, all));
    CHECK(apply_env(&s, half, NULL) == 0); /* replaces as many of the same names */
    sandbox_spec_done(&s);
}

/* As `up` and `exec` check it: with the variables that every command gets. */
TEST(a_command_and_its_variables_count_together)
{
    char *const argv[] = {(char *)"true", NULL}, *const own[] = {(char *)"A=1", NULL};
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_strv_ char **standard = NULL, **words = NULL, **more = NULL;
    struct sandbox_spec s;
    size_t ours;

    spec_defaults(&s);
    s.env = strv_copy(own);
    standard = spec_environment(s.user, s.env, NULL);
    ours = command_size(standard);
    words = large_command(COMMAND_MAX - ours, false);
    more = large_command(COMMAND_MAX - ours + 1, false);
    CHECK(command_check_total(&s, argv, NULL, NULL) == 0);
    CHECK(command_check_total(&s, words, own, NULL) == 0); /* A is counted once */
    CHECK(command_check_total(&s, more, own, &err) == -ERR_INVALID);
    CHECK(strstr(err.msg, "2097152") && err.hint && strstr(err.hint, "standard input"));
    err_done(&err);
    sandbox_spec_done(&s);
    spec_defaults(&s);
    s.env = large_command(COMMAND_MAX, true);
    CHECK(command_check_total(&s, NULL, NULL, &err) == -ERR_INVALID); /* nothing could run */
    CHECK(strstr(err.msg, "field 'env'"));
    sandbox_spec_done(&s);
}

TEST(a_patch_keeps_absent_fields)
{
    struct sandbox_spec s;
    _cleanup_json_ json_t *patch = json_pack("{s:{s:i}, s:n}", "limits", "pids", 20, "user");
    const char *engine = NULL;

    CHECK(apply(&s, "{\"limits\":{\"memory\":104857600},\"user\":\"root\"}", NULL) == 0);
    CHECK(spec_apply(&s, &engine, patch, roots, NULL) == 0);
    CHECK(s.memory == 104857600 && s.pids == 20);
    CHECK_STR(s.user, "root");
    CHECK(engine == NULL);
    sandbox_spec_done(&s);
}

TEST(stored_form_round_trips)
{
    struct sandbox_spec s, t;
    _cleanup_free_ char *text = NULL, *again = NULL;
    char h1[65], h2[65];

    CHECK(apply(&s,
                "{\"limits\":{\"cpus\":1.5},\"env\":{\"Z\":\"1\",\"A\":\"2\"},\"mounts\":[{"
                "\"source\":\"/srv\",\"target\":\"/x\"}]}",
                NULL) == 0);
    text = spec_to_text(&s);
    CHECK(spec_from_text(text, &t, NULL) == 0);
    again = spec_to_text(&t);
    CHECK_STR(again, text);
    CHECK(t.asked == LIMIT_CPUS);
    spec_hash(&s, "native", h1);
    spec_hash(&t, "native", h2);
    CHECK_STR(h1, h2);
    CHECK(strlen(h1) == 64);
    sandbox_spec_done(&s);
    sandbox_spec_done(&t);
    CHECK(spec_from_text("{", &t, NULL) < 0);
}

TEST(hash_depends_on_values_only)
{
    struct sandbox_spec a, b, c;
    char ha[65], hb[65], hc[65], other[65];

    CHECK(apply(&a, "{\"env\":{\"A\":\"1\",\"B\":\"2\"}}", NULL) == 0);
    CHECK(apply(&b,
                "{\"env\":{\"B\":\"2\",\"A\":\"1\"},\"limits\":{\"pids\":300},"
                "\"idle_stop_ms\":5000,\"max_life_ms\":1,\"rm_after_ms\":2}",
                NULL) == 0); /* leases do not count */
    CHECK(b.idle_stop == 5000000 && b.max_life == 1000 && b.rm_after == 2000);
    CHECK(apply(&c, "{\"env\":{\"A\":\"1\",\"B\":\"3\"}}", NULL) == 0);
    spec_hash(&a, "native", ha);
    spec_hash(&b, "native", hb);
    spec_hash(&c, "native", hc);
    spec_hash(&a, "docker", other);
    CHECK_STR(ha, hb);
    CHECK(strcmp(ha, hc) != 0 && strcmp(ha, other) != 0);
    sandbox_spec_done(&a);
    sandbox_spec_done(&b);
    sandbox_spec_done(&c);
}

/* The first hash was read from a sandbox of a version that hashed labels. */
TEST(sandboxes_of_older_versions_keep_their_hash)
{
    struct sandbox_spec old, again;
    _cleanup_free_ char *text = NULL;
    char plain[65], labelled[65], now[65];

    CHECK(apply(&old, "{\"user\":\"nope\",\"image\":\"host\"}", NULL) == 0);
    old.image_digest = xstrdup("host-1");
    spec_hash(&old, "native", plain);
    CHECK_STR(plain, "3a6b0c1c3bb6f2670532275d02afbc9a959fb579db972fd354abdcba5ea72cb7");
    strv_add(&old.labels, "team=x");
    spec_hash(&old, "native", now);
    CHECK_STR(now, plain); /* labels do not count */
    spec_match_hash(&old, "native", plain);
    CHECK(!old.hashed_labels);

    old.hashed_labels = strv_copy(old.labels); /* as an older version hashed it */
    spec_hash(&old, "native", labelled);
    CHECK(strcmp(labelled, plain) != 0);
    strv_free(TAKE_PTR(old.hashed_labels));
    spec_match_hash(&old, "native", labelled);
    spec_hash(&old, "native", now);
    CHECK_STR(now, labelled);

    strv_env_set(&old.labels, "team", "y"); /* a later change does not count */
    text = spec_to_text(&old);
    CHECK(spec_from_text(text, &again, NULL) == 0);
    spec_match_hash(&again, "native", labelled);
    spec_hash(&again, "native", now);
    CHECK_STR(now, labelled);
    spec_match_hash(&again, "native", "something else");
    sandbox_spec_done(&old);
    sandbox_spec_done(&again);
}

TEST(lists_are_merged_by_key_and_cleared)
{
    struct sandbox_spec s;
    const char *engine = NULL;
    _cleanup_json_ json_t *more = NULL, *less = NULL, *wrong = NULL;
    _cleanup_err_ struct err err = ERR_INIT;

    CHECK(apply(&s,
                "{\"env\":{\"A\":\"1\",\"AB\":\"1\"},\"labels\":{\"x\":\"1\"},"
                "\"caches\":{\"pip\":\"off\",\"all\":\"private\"},"
                "\"mounts\":[{\"source\":\"/srv/a\",\"target\":\"/a\"}]}",
                NULL) == 0);
    more = json_loads("{\"env\":{\"A\":\"2\"},\"labels\":{\"y\":\"2\"},"
                      "\"caches\":{\"npm\":\"off\",\"pip\":\"private\"},\"mounts\":["
                      "{\"source\":\"/srv/b\",\"target\":\"/b\"},"
                      "{\"source\":\"/srv/c\",\"target\":\"/a\"}]}",
                      0, NULL);
    CHECK(spec_apply(&s, &engine, more, roots, NULL) == 0);
    CHECK(strv_len(s.env) == 2 && strv_contains(s.env, "A=2") && strv_contains(s.env, "AB=1"));
    CHECK(strv_len(s.labels) == 2 && s.n_caches == 2 && s.cache_mode == CACHE_PRIVATE);
    CHECK(s.n_mounts == 2);
    CHECK_STR(s.mounts[1].source, "/srv/c");
    less =
        json_pack("{s:[s,s,s,s,s]}", "clear", "env=A", "labels", "mounts=/b", "caches", "env=no");
    CHECK(spec_apply(&s, &engine, less, roots, NULL) == 0);
    CHECK(strv_len(s.env) == 1 && strv_contains(s.env, "AB=1") && strv_len(s.labels) == 0);
    CHECK(s.n_mounts == 1 && s.n_caches == 0 && s.cache_mode == CACHE_LAYERED);
    CHECK_STR(s.mounts[0].target, "/a");
    wrong = json_pack("{s:[s]}", "clear", "mount");
    CHECK(spec_apply(&s, &engine, wrong, roots, &err) == -ERR_INVALID && s.n_mounts == 1);
    sandbox_spec_done(&s);
}
