/*
 * The supervisor protocol: messages and plans, with valid and with hostile bytes.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <unistd.h>

#include "large-command.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/plan.h"
#include "proto/supervisor.h"
#include "tap.h"

TEST(message_round_trip)
{
    struct sup_writer w;
    struct sup_reader r;
    struct sup_value v;

    sup_begin(&w, SUP_EXEC, 42);
    sup_put_str(&w, SUP_TAG_EXEC, "12345678"); /* a multiple of 8: still terminated */
    sup_put_str(&w, SUP_TAG_ARG, "");
    sup_put_str(&w, SUP_TAG_CWD, NULL);
    sup_put_u64(&w, SUP_TAG_TIMEOUT, UINT64_MAX);
    CHECK(sup_finish(&w, NULL) == 0);
    CHECK(w.buf.len % 8 == 0);
    CHECK(sup_read(&r, buf_data(&w.buf), w.buf.len, NULL) == 0);
    CHECK(r.head.type == SUP_EXEC && r.head.seq == 42);
    CHECK(sup_next(&r, &v, NULL) == 1 && v.tag == SUP_TAG_EXEC);
    CHECK_STR(v.data, "12345678");
    CHECK(sup_next(&r, &v, NULL) == 1 && v.tag == SUP_TAG_ARG && v.length == 0);
    CHECK_STR(v.data, "");
    CHECK(sup_next(&r, &v, NULL) == 1 && v.u64 == UINT64_MAX);
    CHECK(sup_next(&r, &v, NULL) == 0);
    sup_writer_done(&w);
}

TEST(message_error_round_trip)
{
    _cleanup_err_ struct err in = ERR_INIT, out = ERR_INIT;
    struct sup_writer w;

    err_sys(&in, ENOSPC, "mount '%s'", "/x");
    err_hint(&in, "Make room.");
    sup_begin(&w, SUP_RESULT, 1);
    sup_put_err(&w, &in);
    CHECK(sup_finish(&w, NULL) == 0);
    CHECK(sup_read_err(buf_data(&w.buf), w.buf.len, &out) == -ERR_SYSTEM);
    CHECK(out.errnum == ENOSPC);
    CHECK_STR(out.msg, in.msg);
    CHECK_STR(out.hint, "Make room.");
    sup_writer_done(&w);
    sup_begin(&w, SUP_RESULT, 1);
    CHECK(sup_finish(&w, NULL) == 0);
    err_done(&out);
    CHECK(sup_read_err(buf_data(&w.buf), w.buf.len, &out) == 0 && out.code == ERR_NONE);
    sup_writer_done(&w);
}

TEST(message_overflow_is_reported)
{
    _cleanup_free_ char *big = xcalloc(1, SUP_MSG_MAX + 1);
    struct sup_writer w;

    memset(big, 'x', SUP_MSG_MAX);
    sup_begin(&w, SUP_EXEC, 1);
    sup_put_str(&w, SUP_TAG_ARG, big);
    sup_put_str(&w, SUP_TAG_ARG, "small");
    CHECK(sup_finish(&w, NULL) == -ERR_LIMIT);
    sup_writer_done(&w);
}

/* Walks all fields; false when refused. */
static bool walk(const void *packet, size_t len)
{
    struct sup_reader r;
    struct sup_value v;
    int n;

    if (sup_read(&r, packet, len, NULL) < 0)
        return false;
    while ((n = sup_next(&r, &v, NULL)) > 0)
        ;
    return n == 0;
}

TEST(broken_messages_are_refused)
{
    struct sup_writer w;
    char *copy;

    sup_begin(&w, SUP_EXEC, 1);
    sup_put_str(&w, SUP_TAG_ARG, "abc");
    sup_put_u64(&w, SUP_TAG_TIMEOUT, 5);
    CHECK(sup_finish(&w, NULL) == 0 && walk(buf_data(&w.buf), w.buf.len));
    for (size_t n = 0; n < w.buf.len;
         n++) { /* every cut; a heap copy, so that ASan sees over-reads */
        copy = xmemdup(buf_data(&w.buf), MAX(n, 1));
        CHECK(!walk(copy, n));
        free(copy);
    }
    copy = xmemdup(buf_data(&w.buf), w.buf.len);
    copy[16 + 8 + 3] = 'x'; /* padding */
    CHECK(!walk(copy, w.buf.len));
    memcpy(copy, buf_data(&w.buf), w.buf.len);
    copy[16 + 8 + 1] = 0; /* NUL in a string */
    CHECK(!walk(copy, w.buf.len));
    memcpy(copy, buf_data(&w.buf), w.buf.len);
    memset(copy + 16 + 4, 0xff, 4); /* length of a field */
    CHECK(!walk(copy, w.buf.len));
    free(copy);
    sup_writer_done(&w);
}

/* ---- plans ---- */

#define LAYER_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/fs"
#define LAYER_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb/fs"

static void fill(struct plan *p)
{
    static const struct sock_filter allow = {.code = 6, .k = 0x7fff0000};

    *p = (struct plan)PLAN_INIT;
    p->sandbox_id = xstrdup("0123456789abcdef");
    p->root_id = xstrdup("fedcba9876543210");
    p->name = xstrdup("box");
    p->hash = xstrdup("");
    p->run_dir = xstrdup("/run/x");
    p->data_dir = xstrdup("/data/x");
    p->exec_dir = xstrdup("/execs/x");
    p->lower_dir = xstrdup("/lower");
    p->image = PLAN_IMAGE_ROOTFS;
    strv_add(&p->layers, LAYER_A);
    strv_add(&p->layers, LAYER_B);
    p->n_layers = 2;
    p->id_base = 0x70000000;
    p->memory = 1 << 30;
    p->required = LIMIT_MEMORY;
    p->user = xstrdup("agent");
    p->workdir = xstrdup("/home/agent");
    strv_add(&p->env, "A=1");
    strv_add(&p->env, "B=");
    p->mounts = xcalloc(2, sizeof(*p->mounts));
    p->n_mounts = 2;
    p->mounts[0] = (struct plan_mount){xstrdup("/s"), xstrdup("/t"), true, true, false, 1, 2};
    p->mounts[1] = (struct plan_mount){xstrdup("/s2"), xstrdup("/t/2"), false, false, true, 0, 0};
    p->ephemeral = true;
    p->network = PLAN_NETWORK_OPEN;
    p->net_ifname = xstrdup("rc01234567-0fff");
    p->net_host = 0xc6120000;
    p->net_sandbox = 0xc6120001;
    p->resolv_conf = xstrdup("nameserver 192.0.2.1\n");
    p->disk_image = xstrdup("/data/disk.img");
    p->disk_quota = true;
    p->seccomp = xmemdup(&allow, sizeof(allow));
    p->seccomp_len = sizeof(allow);
}

TEST(plan_round_trip)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int fd = -1;
    struct plan in, out;

    fill(&in);
    CHECK(plan_write(&in, &fd, &err) == 0);
    CHECK(write(fd, "x", 1) < 0); /* sealed */
    CHECK(plan_read(fd, &out, &err) == 0);
    CHECK_STR(out.sandbox_id, in.sandbox_id);
    CHECK_STR(out.lower_dir, "/lower");
    CHECK(out.n_layers == 2 && STREQ(out.layers[0], LAYER_A) && STREQ(out.layers[1], LAYER_B));
    CHECK(out.hash && !*out.hash && out.image == PLAN_IMAGE_ROOTFS && out.id_base == 0x70000000);
    CHECK(out.memory == 1 << 30 && out.pids == 0 && out.required == LIMIT_MEMORY);
    CHECK(strv_len(out.env) == 2 && STREQ(out.env[1], "B="));
    CHECK(out.n_mounts == 2 && out.mounts[0].read_only && out.mounts[0].ino == 2);
    CHECK_STR(out.mounts[1].target, "/t/2");
    CHECK(out.ephemeral && out.network == PLAN_NETWORK_OPEN && !out.cgroup_parent);
    CHECK(out.net_host == 0xc6120000 && out.net_sandbox == 0xc6120001 && out.net_mtu == 0);
    CHECK_STR(out.net_ifname, "rc01234567-0fff");
    CHECK_STR(out.resolv_conf, "nameserver 192.0.2.1\n");
    CHECK_STR(out.disk_image, "/data/disk.img");
    CHECK(out.disk_quota);
    CHECK(out.seccomp_len == in.seccomp_len && !memcmp(out.seccomp, in.seccomp, in.seccomp_len));
    plan_done(&in);
    plan_done(&out);
}

static void set(char **field, const char *value)
{
    free(*field);
    *field = value ? xstrdup(value) : NULL;
}

static void on_host(struct plan *p, const char *above, const char *lowest)
{
    p->image = PLAN_IMAGE_HOST;
    set(&p->layers[0], above);
    set(&p->layers[1], lowest);
}

/* Applies one fault to a good plan. */
static bool spoil(struct plan *p, int which)
{
    /* clang-format off */
    switch (which) {
    case 0: set(&p->sandbox_id, "0123456789abcdeg"); break;
    case 1: set(&p->root_id, NULL); break;
    case 2: set(&p->name, "a/b"); break;
    case 3: set(&p->data_dir, "relative"); break;
    case 4: set(&p->lower_dir, "/a/../b"); break;
    case 5: set(&p->run_dir, "/a//b"); break;
    case 6: p->id_base = 1000; break;
    case 7: p->id_base = UINT32_MAX; break;
    case 8: set(&p->mounts[0].target, "/"); break;
    case 9: set(&p->mounts[1].source, "x"); break;
    case 10: set(&p->user, "0x0"); break;
    case 11: set(&p->user, NULL); break;
    case 12: strv_add(&p->env, "no equals"); break;
    case 13: set(&p->workdir, "here"); break;
    case 14: p->seccomp_len = 7; break;
    case 15: set(&p->cgroup_parent, "/a"); break;
    case 16: set(&p->cgroup_parent, "a/../b"); break;
    case 17: p->cpu_milli = 2000000; break;
    case 18: p->image = 17; break;
    case 19: set(&p->disk_image, "disk.img"); break;
    case 20: p->sub_uid = p->sub_gid = 100000; break; /* and a range */
    case 21: p->id_base = 0; p->sub_uid = 100000; break;
    case 22: p->id_base = 0; p->sub_uid = p->sub_gid = 1000; break;
    case 23: p->id_base = 0; p->sub_uid = p->sub_gid = UINT32_MAX - 1; break;
    case 24: set(&p->layers[0], "../fs"); break;
    case 25: p->image = PLAN_IMAGE_HOST; break; /* with layers of another */
    case 26: p->n_layers = 1; break;
    case 27: on_host(p, "store/layers/" LAYER_A, "host/g-0123456789abcde"); break;
    case 28: on_host(p, LAYER_A, "host/g-0123456789abcdef"); break;
    case 29: on_host(p, "host/g-0123456789abcdef", "store/layers/" LAYER_A); break;
    case 30: on_host(p, "store/layers/" LAYER_A, "host/../host/g-01234567"); break;
    case 31: on_host(p, "store/layers/" LAYER_A, "host/g-0123456789abcdef"); p->image = PLAN_IMAGE_ROOTFS; break;
    default: return false;
    }
    /* clang-format on */
    return true;
}

TEST(layers_may_lie_above_the_machine)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SUP_PLAN_MAX);
    struct plan in, out;

    fill(&in);
    on_host(&in, "store/layers/" LAYER_A, "host/g-0123456789abcdef");
    CHECK(plan_encode(&in, &b, NULL) == 0);
    CHECK(plan_decode(buf_data(&b), b.len, &out, NULL) == 0);
    CHECK(out.image == PLAN_IMAGE_HOST && out.n_layers == 2);
    CHECK_STR(out.layers[1], "host/g-0123456789abcdef");
    plan_done(&in);
    plan_done(&out);
}

/* False: a fault was accepted. */
static bool refused(void (*fill_plan)(struct plan *), bool (*spoil_plan)(struct plan *, int))
{
    for (int i = 0;; i++) {
        _cleanup_buf_ struct buf b = BUF_INIT(SUP_PLAN_MAX);
        struct plan p;
        bool more;
        int r;

        fill_plan(&p);
        more = spoil_plan(&p, i);
        r = plan_encode(&p, &b, NULL);
        plan_done(&p);
        if (!more)
            return r == 0 && i > 0;
        if (r >= 0)
            printf("# fault %d was accepted\n", i);
        if (r >= 0)
            return false;
    }
}

TEST(bad_plans_are_refused)
{
    CHECK(refused(fill, spoil));
}

/* ---- without namespaces ---- */

static void fill_confined(struct plan *p)
{
    fill(p);
    set(&p->disk_image, NULL);
    set(&p->net_ifname, NULL);
    set(&p->mounts[0].target, "/s");
    set(&p->mounts[1].target, "/s2");
    p->layers = strv_free(p->layers);
    p->n_layers = 0;
    p->id_base = 0;
    p->image = PLAN_IMAGE_HOST;
    p->network = PLAN_NETWORK_PACKAGES;
    p->confined = true;
    p->own_id = 0x70000001;
    p->own_group = 0x70000000;
    p->packages_port = 20001;
    p->ports = xcalloc(2, sizeof(*p->ports));
    p->ports[0] = (struct plan_ports){32768, 33023};
    p->ports[1] = (struct plan_ports){3000, 3000};
    p->n_ports = 2;
    strv_add(&p->readable, "/usr");
    strv_add(&p->readable, "/etc/passwd");
}

static bool spoil_confined(struct plan *p, int which)
{
    /* clang-format off */
    switch (which) {
    case 0: p->confined = false; break;
    case 1: p->id_base = 0x70000000; break;
    case 2: p->sub_uid = p->sub_gid = 200000; break;
    case 3: strv_add(&p->layers, LAYER_A); p->n_layers = 1; break;
    case 4: set(&p->cache_base, "/base"); break;
    case 5: p->strict = true; break;
    case 6: p->bare = true; break;
    case 7: p->own_id = 1000; break;
    case 8: p->own_id = 0; break; /* with a group */
    case 9: p->own_group = 0; break;
    case 10: p->own_group = 4; break;
    case 11: set(&p->mounts[0].target, "/t"); break;
    case 12: strv_add(&p->readable, "etc"); break;
    case 13: strv_add(&p->readable, "/usr/../root"); break;
    case 14: p->ports[0].first = 0; break;
    case 15: p->ports[1].last = 2999; break;
    case 16: p->ports[0].last = 60000; break;
    case 17: p->packages_port = 65536; break;
    case 18: p->own_id = UINT32_MAX; break;
    case 19: for (int i = 0; i < PLAN_READABLE_MAX; i++) strv_add(&p->readable, "/x"); break;
    default: return false;
    }
    /* clang-format on */
    return true;
}

TEST(a_confined_sandbox_has_ports_and_paths)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SUP_PLAN_MAX);
    struct plan in, out;

    fill_confined(&in);
    CHECK(plan_encode(&in, &b, NULL) == 0);
    CHECK(plan_decode(buf_data(&b), b.len, &out, NULL) == 0);
    CHECK(out.confined && out.own_id == 0x70000001 && out.own_group == 0x70000000);
    CHECK(out.packages_port == 20001 && out.n_ports == 2);
    CHECK(out.ports[0].first == 32768 && out.ports[0].last == 33023 && out.ports[1].last == 3000);
    CHECK(strv_len(out.readable) == 2 && STREQ(out.readable[1], "/etc/passwd"));
    plan_done(&in);
    plan_done(&out);
}

TEST(what_needs_namespaces_has_no_place_in_its_plan)
{
    CHECK(refused(fill_confined, spoil_confined));
}

TEST(the_largest_environment_and_one_byte_more)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SUP_PLAN_MAX);
    struct plan in, out;

    fill(&in);
    strv_free(in.env);
    in.env = large_command(COMMAND_MAX + 1, true);
    CHECK(plan_encode(&in, &b, NULL) == -ERR_LIMIT && !b.len);
    strv_free(in.env);
    in.env = large_command(COMMAND_MAX, true);
    CHECK(plan_encode(&in, &b, NULL) == 0);
    CHECK(plan_decode(buf_data(&b), b.len, &out, NULL) == 0 && strv_equal(in.env, out.env));
    plan_done(&in);
    plan_done(&out);
}

/* The shim checks for itself: these bytes come from a writer that does not. */
TEST(a_shim_refuses_an_environment_that_linux_would_not_take)
{
    _cleanup_free_ char *longest = large_string("A=", COMMAND_STRING_MAX - 1);
    _cleanup_free_ char *longer = large_string("A=", COMMAND_STRING_MAX);
    const struct {
        const char *variable;
        int times, result;
    } cases[] = {{longest, 1, 0}, {longer, 1, -ERR_INVALID}, {longest, 16, -ERR_LIMIT}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sup_writer w = {.buf = BUF_INIT(SUP_PLAN_MAX)};
        struct plan in, out = PLAN_INIT;

        fill(&in);
        CHECK(plan_encode(&in, &w.buf, NULL) == 0);
        for (int k = 0; k < cases[i].times; k++)
            sup_put_str(&w, PLAN_TAG_ENV, cases[i].variable);
        CHECK(!w.overflow);
        CHECK(plan_decode(buf_data(&w.buf), w.buf.len, &out, NULL) == cases[i].result);
        plan_done(&in);
        plan_done(&out);
        sup_writer_done(&w);
    }
}

TEST(cut_and_flipped_plans_never_crash)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SUP_PLAN_MAX);
    struct plan in, out;
    size_t whole = 0;

    fill(&in);
    CHECK(plan_encode(&in, &b, NULL) == 0);
    plan_done(&in);
    for (size_t n = 0; n <= b.len; n++) {
        char *copy = xmemdup(buf_data(&b), MAX(n, 1));

        if (plan_decode(copy, n, &out, NULL) >= 0) {
            plan_done(&out);
            whole = n;
        }
        free(copy);
    }
    CHECK(whole == b.len);
    for (size_t n = 0; n < b.len * 8; n++) {
        char *copy = xmemdup(buf_data(&b), b.len);

        copy[n / 8] = (char)(copy[n / 8] ^ 1 << n % 8);
        if (plan_decode(copy, b.len, &out, NULL) >= 0)
            plan_done(&out);
        free(copy);
    }
}
