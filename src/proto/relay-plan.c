/*
 * See relay-plan.h. One table has the name, kind and limit of each member; writing and reading both
 * use it.
 */
#include "proto/relay-plan.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum member_kind { MEMBER_STR, MEMBER_U64, MEMBER_U32, MEMBER_BOOL };

/* clang-format off */
static const struct member {
    const char *name;
    enum member_kind kind;
    size_t offset;
    uint64_t max; /* number: largest value; string: longest */
} members[] = {
#define NAMED(text, kind, member, max) {text, MEMBER_##kind, offsetof(struct relay_plan, member), max}
#define MEMBER(kind, name, max) NAMED(#name, kind, name, max)
    MEMBER(STR,  sandbox_id,     16),
    MEMBER(STR,  name,           63),
    MEMBER(STR,  hash,           64),
    MEMBER(STR,  endpoint,       PATH_MAX),
    MEMBER(STR,  container,      128),
    MEMBER(STR,  run_dir,        PATH_MAX - 64),
    MEMBER(STR,  exec_dir,       PATH_MAX - 64),
    MEMBER(STR,  user,           64),
    MEMBER(STR,  workdir,        PATH_MAX - 1),
    MEMBER(U64,  memory,         INT64_MAX),
    MEMBER(U32,  pids,           4194304),
    MEMBER(U32,  unenforced,     UINT32_MAX),
    NAMED("registry_port",   U32,  packages_port,   UINT16_MAX), /* as older relays call them */
    NAMED("registry_inside", BOOL, packages_inside, 1),
    MEMBER(BOOL, own_kernel,     1),
    MEMBER(U64,  journal_budget, INT64_MAX),
    MEMBER(BOOL, ephemeral,      1),
#undef MEMBER
#undef NAMED
};
/* clang-format on */

void relay_plan_done(struct relay_plan *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        if (members[i].kind == MEMBER_STR)
            free(*(char **)((char *)p + members[i].offset));
    strv_free(p->env);
    *p = (struct relay_plan)RELAY_PLAN_INIT;
}

/* ---- checks ---- */

static int relay_plan_check_strings(const struct relay_plan *p, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        const char *s;

        if (members[i].kind != MEMBER_STR)
            continue;
        s = *(char *const *)((const char *)p + members[i].offset);
        if (!s || strlen(s) > members[i].max)
            return err_set(err, ERR_INVALID, "relay plan: %s is missing or exceeds %llu bytes",
                           members[i].name, (unsigned long long)members[i].max);
    }
    return 0;
}

static int relay_plan_check(const struct relay_plan *p, struct err *err)
{
    int r = relay_plan_check_strings(p, err);

    if (r < 0)
        return r;
    if (strlen(p->sandbox_id) != 16 || strspn(p->sandbox_id, "0123456789abcdef") != 16)
        return err_set(err, ERR_INVALID, "relay plan: sandbox id '%s' is not 16 hex digits",
                       p->sandbox_id);
    if (!name_is_valid(p->name))
        return err_set(err, ERR_INVALID, "relay plan: invalid name '%s'", p->name);
    /* The id is part of request paths, so it must contain only plain characters. */
    if (!*p->container || strspn(p->container, "0123456789abcdef") != strlen(p->container))
        return err_set(err, ERR_INVALID, "relay plan: invalid container id '%s'", p->container);
    if (p->run_dir[0] != '/' || p->exec_dir[0] != '/' || p->workdir[0] != '/')
        return err_set(err, ERR_INVALID, "relay plan: a folder's path is not absolute");
    if (parse_user(p->user, err) < 0)
        return err_wrap(err, "relay plan: user");
    if (command_size(p->env) > COMMAND_MAX || command_oversized(p->env))
        return err_set(err, ERR_LIMIT,
                       "the variables of the sandbox and its image are too large (%zu bytes, at "
                       "most %d in all and %d in one)",
                       command_size(p->env), COMMAND_MAX, COMMAND_STRING_MAX - 1);
    for (char *const *e = p->env; e && *e; e++)
        if (parse_env(*e, err) < 0)
            return err_wrap(err, "relay plan: env");
    return 0;
}

/* ---- writing ---- */

static json_t *relay_plan_member_to_json(const struct relay_plan *p, const struct member *m)
{
    const void *at = (const char *)p + m->offset;

    switch (m->kind) {
    case MEMBER_STR:
        return json_string(*(char *const *)at);
    case MEMBER_U64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case MEMBER_U32:
        return json_integer(*(const uint32_t *)at);
    case MEMBER_BOOL:
        return json_boolean(*(const bool *)at);
    }
    return NULL;
}

/* NULL if a string is not UTF-8, which JSON cannot hold. */
static json_t *relay_plan_to_json(const struct relay_plan *p)
{
    json_t *doc = json_object(), *env = json_array();
    int r = json_object_set_new(doc, "env", env);

    for (size_t i = 0; i < ARRAY_SIZE(members); i++)
        r |= json_object_set_new(doc, members[i].name, relay_plan_member_to_json(p, &members[i]));
    for (char **e = p->env; e && *e; e++)
        r |= json_array_append_new(env, json_string(*e));
    if (r == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

int relay_plan_write(const struct relay_plan *p, int *ret_fd, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    json_t *doc;
    int r = relay_plan_check(p, err);

    if (r < 0)
        return r;
    doc = relay_plan_to_json(p);
    if (!doc)
        return err_set(err, ERR_INVALID, "relay plan: a name or variable is not UTF-8");
    text = json_to_text(doc, false);
    json_decref(doc);
    if (strlen(text) > RELAY_PLAN_MAX)
        return err_set(err, ERR_LIMIT, "relay plan: exceeds %d bytes", RELAY_PLAN_MAX);
    return memfd_sealed("ripcord-plan", text, strlen(text), ret_fd, err);
}

/* ---- reading ---- */

static int relay_plan_take_member(struct relay_plan *p, const struct member *m, const json_t *v,
                                  struct err *err)
{
    void *at = (char *)p + m->offset;
    uint64_t n = (uint64_t)json_integer_value(v);
    bool number = json_is_integer(v) && json_integer_value(v) >= 0 && n <= m->max;

    if (m->kind == MEMBER_STR && json_is_string(v))
        *(char **)at = xstrdup(json_string_value(v));
    else if (m->kind == MEMBER_U64 && number)
        *(uint64_t *)at = n;
    else if (m->kind == MEMBER_U32 && number)
        *(uint32_t *)at = (uint32_t)n;
    else if (m->kind == MEMBER_BOOL && json_is_boolean(v))
        *(bool *)at = json_is_true(v);
    else
        return err_set(err, ERR_INVALID, "relay plan: %s is missing or invalid", m->name);
    return 0;
}

static int relay_plan_from_json(const json_t *doc, struct relay_plan *p, struct err *err)
{
    const json_t *env = json_object_get(doc, "env");
    int r;

    if (!json_is_array(env))
        return err_set(err, ERR_INVALID, "relay plan: env is missing");
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        r = relay_plan_take_member(p, &members[i], json_object_get(doc, members[i].name), err);
        if (r < 0)
            return r;
    }
    r = json_read_strv(env, "env", &p->env, err);
    if (r < 0)
        return r;
    return relay_plan_check(p, err);
}

static int relay_plan_read_text(int fd, char **ret, size_t *ret_len, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "read the plan's size");
    if (st.st_size <= 0 || st.st_size > RELAY_PLAN_MAX)
        return err_set(err, ERR_INVALID, "plan: invalid size (%lld bytes)", (long long)st.st_size);
    text = xmalloc((size_t)st.st_size);
    n = pread(fd, text, (size_t)st.st_size, 0);
    if (n != st.st_size)
        return err_sys(err, n < 0 ? errno : EIO, "read the plan");
    *ret = TAKE_PTR(text);
    *ret_len = (size_t)n;
    return 0;
}

int relay_plan_read(int fd, struct relay_plan *ret, struct err *err)
{
    _cleanup_(relay_plan_done) struct relay_plan p = RELAY_PLAN_INIT;
    _cleanup_free_ char *text = NULL;
    json_t *doc = NULL;
    size_t len = 0;
    int r;

    r = relay_plan_read_text(fd, &text, &len, err);
    if (r < 0)
        return r;
    r = json_parse("the plan", text, len, &doc, err);
    if (r < 0)
        return r;
    r = relay_plan_from_json(doc, &p, err);
    json_decref(doc);
    if (r < 0)
        return r;
    *ret = p;
    p = (struct relay_plan)RELAY_PLAN_INIT;
    return 0;
}
