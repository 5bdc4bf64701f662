#include "proto/relay-plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "large-command.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "tap.h"

static void fill(struct relay_plan *p)
{
    *p = (struct relay_plan){
        .sandbox_id = xstrdup("0123456789abcdef"),
        .name = xstrdup("box"),
        .hash = xstrdup(""),
        .endpoint = xstrdup("unix:///run/docker.sock"),
        .container = xstrdup("c0ffee"),
        .run_dir = xstrdup("/run/x"),
        .exec_dir = xstrdup("/var/x"),
        .user = xstrdup("agent"),
        .workdir = xstrdup("/home/agent"),
        .memory = UINT64_C(1) << 40,
        .pids = 300,
        .unenforced = 3,
        .packages_port = 7417,
        .packages_inside = true,
        .own_kernel = true,
        .journal_budget = 1 << 28,
        .ephemeral = true,
    };
    strv_add(&p->env, "A=\xc3\xa4 \"quoted\"\n");
    strv_add(&p->env, "B=");
}

static void put(char **at, const char *text)
{
    free(*at);
    *at = text ? xstrdup(text) : NULL;
}

TEST(round_trip)
{
    struct relay_plan a, b = RELAY_PLAN_INIT;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;

    fill(&a);
    CHECK(relay_plan_write(&a, &fd, &err) == 0);
    CHECK(write(fd, "x", 1) < 0); /* sealed */
    CHECK(relay_plan_read(fd, &b, &err) == 0);
    CHECK(STREQ(b.sandbox_id, a.sandbox_id) && STREQ(b.name, a.name) && STREQ(b.hash, ""));
    CHECK(STREQ(b.endpoint, a.endpoint) && STREQ(b.container, a.container));
    CHECK(STREQ(b.run_dir, a.run_dir) && STREQ(b.exec_dir, a.exec_dir));
    CHECK(STREQ(b.user, a.user) && STREQ(b.workdir, a.workdir));
    CHECK(strv_len(b.env) == 2 && STREQ(b.env[0], a.env[0]) && STREQ(b.env[1], "B="));
    CHECK(b.memory == a.memory && b.pids == 300 && b.unenforced == 3 && b.ephemeral);
    CHECK(b.journal_budget == 1 << 28 && b.packages_port == 7417 && b.packages_inside);
    CHECK(b.own_kernel);
    relay_plan_done(&a);
    relay_plan_done(&b);
}

/* Each would be accepted but for one thing. */
TEST(what_is_refused)
{
    static const struct {
        size_t offset;
        const char *value;
    } cases[] = {
        {offsetof(struct relay_plan, sandbox_id), "0123456789ABCDEF"},
        {offsetof(struct relay_plan, sandbox_id), NULL},
        {offsetof(struct relay_plan, name), "../box"},
        {offsetof(struct relay_plan, container), "c0ffee/../x"},
        {offsetof(struct relay_plan, container), ""},
        {offsetof(struct relay_plan, run_dir), "run"},
        {offsetof(struct relay_plan, workdir), "home"},
        {offsetof(struct relay_plan, user), "a b"},
        {offsetof(struct relay_plan, endpoint), NULL},
        {offsetof(struct relay_plan, exec_dir), "/\xff"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct relay_plan p;
        int fd = -1;

        fill(&p);
        put((char **)((char *)&p + cases[i].offset), cases[i].value);
        CHECK(relay_plan_write(&p, &fd, &err) < 0);
        CHECK(err.msg && fd == -1);
        relay_plan_done(&p);
    }
}

TEST(bad_environment_is_refused)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct relay_plan p;
    int fd = -1;

    fill(&p);
    strv_add(&p.env, "no equals sign");
    CHECK(relay_plan_write(&p, &fd, &err) == -ERR_INVALID);
    relay_plan_done(&p);
}

TEST(the_largest_environment_and_one_byte_more)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct relay_plan p, back = RELAY_PLAN_INIT;
    int fd = -1;

    fill(&p);
    strv_free(p.env);
    p.env = large_command(COMMAND_MAX + 1, true);
    CHECK(relay_plan_write(&p, &fd, &err) == -ERR_LIMIT && fd == -1);
    strv_free(p.env);
    p.env = large_command(COMMAND_MAX, true);
    for (char **e = p.env; *e; e++) /* JSON has six bytes for each of these */
        memset(*e + 6, '\1', strlen(*e + 6));
    CHECK(relay_plan_write(&p, &fd, &err) == 0);
    CHECK(relay_plan_read(fd, &back, &err) == 0 && strv_equal(back.env, p.env));
    relay_plan_done(&back);
    close(fd);
    relay_plan_done(&p);
}

TEST(a_variable_that_linux_would_not_take_is_refused)
{
    struct relay_plan p;
    int fd = -1;

    fill(&p);
    strv_push(&p.env, large_string("C=", COMMAND_STRING_MAX));
    CHECK(relay_plan_write(&p, &fd, NULL) == -ERR_LIMIT && fd == -1);
    p.env[2][COMMAND_STRING_MAX - 1] = '\0';
    CHECK(relay_plan_write(&p, &fd, NULL) == 0);
    close(fd);
    relay_plan_done(&p);
}

/* The reader checks for itself: the plan may come from another version. */
TEST(broken_text_is_refused)
{
    static const char *const texts[] = {"", "{", "[]", "{}", "{\"sandbox_id\":5}"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct relay_plan p = RELAY_PLAN_INIT;
        _cleanup_close_ int fd = -1;

        CHECK(memfd_sealed("t", texts[i], strlen(texts[i]), &fd, &err) == 0);
        CHECK(relay_plan_read(fd, &p, &err) < 0);
        CHECK(!p.sandbox_id && err.msg);
    }
}

TEST(every_member_is_needed_and_of_its_kind)
{
    struct relay_plan p, back = RELAY_PLAN_INIT;
    _cleanup_close_ int fd = -1;
    char text[4096];
    ssize_t n;

    fill(&p);
    CHECK(relay_plan_write(&p, &fd, NULL) == 0);
    n = pread(fd, text, sizeof(text) - 1, 0);
    CHECK(n > 0);
    text[n] = '\0';
    for (char *at = strstr(text, "\":"); at; at = strstr(at + 1, "\":")) {
        _cleanup_close_ int bad = -1;

        at[-1] ^= 1; /* the member's name */
        CHECK(memfd_sealed("t", text, (size_t)n, &bad, NULL) == 0);
        CHECK(relay_plan_read(bad, &back, NULL) < 0);
        at[-1] ^= 1;
    }
    relay_plan_done(&p);
}
