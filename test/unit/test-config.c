/* ripcord.yaml: values, sources, and what is refused with its line. */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/main/config.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "tap.h"

static char path[] = "/tmp/test-config-XXXXXX";

static int load(const char *text, struct daemon_config *c, struct err *err)
{
    int fd, r;

    snprintf(path, sizeof(path), "/tmp/test-config-XXXXXX");
    fd = mkstemp(path);
    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
        abort();
    close(fd);
    r = config_load(c, path, err);
    unlink(path);
    return r;
}

TEST(no_file_gives_the_defaults)
{
    _cleanup_config_ struct daemon_config c = {0};

    CHECK(config_load(&c, "/nonexistent/ripcord.yaml", NULL) == 0);
    CHECK_STR(c.engine, "native");
    CHECK(c.memory == GIB(4) && c.cpus == 2000 && c.stop_grace == 10 * USEC_PER_SEC);
    CHECK(strv_contains(c.mount_roots, "/home"));
    CHECK_STR(c.sources[0], "default");
}

TEST(values_and_where_they_come_from)
{
    _cleanup_config_ struct daemon_config c = {0};
    _cleanup_json_ json_t *doc = NULL;
    char source[64];

    CHECK(load("# comment\nengine: native\ndefaults:\n  memory: 1G\n  cpus: 0.5\nlog.level: debug\n"
               "mounts:\n  roots: [/a, /b/c]\nlog:\n  json: yes\n",
               &c, NULL) == 0);
    CHECK(c.memory == GIB(1) && c.cpus == 500 && c.log_json);
    CHECK_STR(c.log_level, "debug");
    CHECK(strv_len(c.mount_roots) == 2 && STREQ(c.mount_roots[1], "/b/c"));
    doc = config_to_json(&c);
    snprintf(source, sizeof(source), "%s:4", path);
    CHECK_STR(json_string_value(json_object_get(json_object_get(doc, "defaults.memory"), "source")),
              source);
    CHECK_STR(json_string_value(json_object_get(json_object_get(doc, "defaults.pids"), "source")),
              "default");
}

TEST(old_names_of_groups_work_with_a_warning)
{
    _cleanup_config_ struct daemon_config c = {0};
    _cleanup_json_ json_t *doc = NULL;
    char source[64];

    CHECK(load("registry:\n  offline: never\nregistry.deny: [evil]\nhub.add_max: 1M\n"
               "packages.min_age: 1d\n",
               &c, NULL) == 0);
    CHECK_STR(c.packages_offline, "never");
    CHECK(c.transfer_add_max == MIB(1) && strv_contains(c.packages_deny, "evil"));
    CHECK(strv_len(c.warnings) == 3);
    CHECK(strstr(c.warnings[0], ":2: key 'registry.offline' is deprecated, use "
                                "'packages.offline'"));
    CHECK(strstr(c.warnings[1], "'packages.deny'") && strstr(c.warnings[2], "'transfer.add_max'"));
    doc = config_to_json(&c);
    CHECK(!json_object_get(doc, "registry.offline") && !json_object_get(doc, "hub.add_max"));
    snprintf(source, sizeof(source), "%s:4", path);
    CHECK_STR(
        json_string_value(json_object_get(json_object_get(doc, "transfer.add_max"), "source")),
        source);
}

TEST(new_names_give_no_warning)
{
    _cleanup_config_ struct daemon_config c = {0};

    CHECK(load("packages.budget: 1G\ntransfer:\n  add_max: 1M\n", &c, NULL) == 0);
    CHECK(c.packages_budget == GIB(1) && c.transfer_add_max == MIB(1));
    CHECK(strv_len(c.warnings) == 0);
}

TEST(empty_files_are_fine)
{
    static const char *const texts[] = {"", "\n\n", "# only a comment\n", "---\n", "{}\n"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _cleanup_config_ struct daemon_config c = {0};

        CHECK(load(texts[i], &c, NULL) == 0);
        CHECK(c.memory == GIB(4));
    }
}

static const struct {
    const char *text, *word, *hint;
} bad[] = {
    {"no_such_key: 1\n", "no_such_key", NULL},
    {"\n\ndefaults:\n  memroy: 1G\n", "line 4", "defaults.memory"},
    {"defaults:\n  memory: lots\n", "defaults.memory", NULL},
    {"defaults:\n  memory: [1G]\n", "defaults.memory", NULL},
    {"mounts.roots: /a\n", "mounts.roots", NULL},
    {"mounts.roots: [a]\n", "mounts.roots", NULL},
    {"engine: native\nengine: fake\n", "twice", NULL},
    {"registry.budget: 1G\npackages.budget: 1G\n", "'packages.budget' is given twice", NULL},
    {"transfer.uid: 7\nhub.uid: 7\n", "'transfer.uid' is given twice", NULL},
    {"registry.nothing: 7\n", "packages.nothing", NULL},
    {"registry.offline: perhaps\n", "packages.offline", NULL},
    {"registry.budget: lots\n", "registry.budget", NULL},
    {"defaults:\n  cpus: 0\n", "defaults.cpus", NULL},
    {"defaults:\n  network: wild\n", "wild", NULL},
    {"defaults:\n  cache: shared\n", "each tool by name", NULL},
    {"defaults:\n  cache: shred\n", "shred", NULL},
    {"log.level: loud\n", "log.level", NULL},
    {"log.json: perhaps\n", "perhaps", NULL},
    {"- a\n- b\n", "line 1", NULL},
    {"just words\n", "line 1", NULL},
    {"a: {b: {c: 1}}\n", "line 1", NULL},
    {"engine: *x\n", "line 1", NULL},
    {"engine: &x native\n", "anchor", NULL},
    {"engine: !!str native\n", "tag", NULL},
    {"engine: native\n---\nengine: native\n", "one document", NULL},
    {"engine: 'open\n", "YAML", NULL},
    {"\tengine: native\n", "YAML", NULL},
};

TEST(what_is_wrong_is_refused_with_its_place)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        _cleanup_config_ struct daemon_config c = {0};
        _cleanup_err_ struct err err = ERR_INIT;

        printf("# %s", bad[i].text);
        CHECK(load(bad[i].text, &c, &err) == -ERR_INVALID);
        CHECK(strstr(err.msg, bad[i].word));
        CHECK(strstr(err.msg, path));
        CHECK(!bad[i].hint || (err.hint && strstr(err.hint, bad[i].hint)));
    }
}
