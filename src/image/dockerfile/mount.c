#include "image/dockerfile/mount.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static const char *const type_names[] = {"bind", "cache", "tmpfs", "secret", "ssh"};
static const char *const sharing_names[] = {"shared", "private", "locked"};

const char *mount_type_name(enum mount_type type)
{
    return type_names[type];
}

void mount_done(struct dockerfile_mount *m)
{
    char *const owned[] = {m->from, m->source, m->target, m->id,   m->sharing,
                           m->mode, m->uid,    m->gid,    m->size, m->env};

    for (size_t i = 0; i < ARRAY_SIZE(owned); i++)
        free(owned[i]);
    *m = (struct dockerfile_mount){0};
}

uint32_t mount_number(const char *text, int base, uint32_t otherwise)
{
    return text ? (uint32_t)strtoul(text, NULL, base) : otherwise;
}

/* ---- one field of comma-separated values ---- */

/* A field: plain up to the comma, or in quotes, as in "a,""b""". *s moves to the comma or the
 * end. */
static int dockerfile_mount_read_field(const char **s, char **ret, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(strlen(*s) + 1);
    const char *p = *s;

    if (*p != '"') {
        size_t n = strcspn(p, ",");

        if (memchr(p, '"', n))
            return err_set(err, ERR_INVALID, "--mount: unexpected quote (\") in '%.*s'", (int)n, p);
        *ret = xstrndup(p, n);
        *s = p + n;
        return 0;
    }
    for (p++; *p && (*p != '"' || p[1] == '"'); p += *p == '"' ? 2 : 1)
        (void)!buf_append_c(&b, *p);
    if (*p != '"' || (p[1] && p[1] != ','))
        return err_set(err, ERR_INVALID, "--mount: a quote (\") is not closed, or text follows it");
    *ret = buf_steal(&b);
    *s = p + 1;
    return 0;
}

/* ---- the keys ---- */

enum mount_key {
    KEY_TYPE,
    KEY_FROM,
    KEY_SOURCE,
    KEY_TARGET,
    KEY_READONLY,
    KEY_READWRITE,
    KEY_REQUIRED,
    KEY_ID,
    KEY_SHARING,
    KEY_MODE,
    KEY_UID,
    KEY_GID,
    KEY_SIZE,
    KEY_ENV,
};

/* clang-format off */
static const struct {
    const char *name;
    enum mount_key key;
} keys[] = {
    {"type", KEY_TYPE}, {"from", KEY_FROM}, {"source", KEY_SOURCE}, {"src", KEY_SOURCE},
    {"target", KEY_TARGET}, {"dst", KEY_TARGET}, {"destination", KEY_TARGET},
    {"readonly", KEY_READONLY}, {"ro", KEY_READONLY}, {"readwrite", KEY_READWRITE},
    {"rw", KEY_READWRITE}, {"required", KEY_REQUIRED}, {"id", KEY_ID}, {"sharing", KEY_SHARING},
    {"mode", KEY_MODE}, {"uid", KEY_UID}, {"gid", KEY_GID}, {"size", KEY_SIZE}, {"env", KEY_ENV},
};
/* clang-format on */

struct mount_state {
    struct dockerfile_mount *m;
    bool defer, access_given;
    bool deferred; /* a value is not checked yet, so combinations cannot be checked */
};

static int dockerfile_mount_find_key(const char *field, size_t len, enum mount_key *ret,
                                     struct err *err)
{
    const char *names[ARRAY_SIZE(keys)], *near;
    _cleanup_free_ char *name = xstrndup(field, len);

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        names[i] = keys[i].name;
        if (!strcasecmp(keys[i].name, name)) {
            *ret = keys[i].key;
            return 0;
        }
    }
    err_set(err, ERR_INVALID, "--mount: unknown option '%s'", name);
    near = strv_nearest(name, names, ARRAY_SIZE(names));
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

static int dockerfile_mount_find_word(const char *what, const char *value, const char *const *words,
                                      size_t n, size_t *ret, struct err *err)
{
    const char *near;

    for (size_t i = 0; i < n; i++)
        if (!strcasecmp(words[i], value)) {
            *ret = i;
            return 0;
        }
    near = strv_nearest(value, words, n);
    err_set(err, ERR_INVALID, "--mount: unsupported %s '%s'", what, value);
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

static void dockerfile_mount_replace(char **slot, const char *value)
{
    free(*slot);
    *slot = xstrdup(value);
}

/* Accepts the words of Go's ParseBool(). */
static int dockerfile_mount_read_bool(const char *value, bool *ret, struct err *err)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        if (STREQ(yes[i], value) || STREQ(no[i], value)) {
            *ret = STREQ(yes[i], value);
            return 0;
        }
    return err_set(err, ERR_INVALID, "--mount: expected true or false, not '%s'", value);
}

static int dockerfile_mount_not_for(const struct dockerfile_mount *m, const char *what,
                                    struct err *err)
{
    return err_set(err, ERR_INVALID, "--mount: '%s' is not allowed for type %s", what,
                   type_names[m->type]);
}

static int dockerfile_mount_set_numbers(struct dockerfile_mount *m, enum mount_key key,
                                        const char *value, struct err *err)
{
    uint32_t id;

    if (key == KEY_MODE &&
        (!*value || strspn(value, "01234567") != strlen(value) || strlen(value) > 10))
        return err_set(err, ERR_INVALID, "--mount: invalid mode '%s'", value);
    /* UINT32_MAX is not a user: chown() to it leaves the owner unchanged. */
    if (key != KEY_MODE && parse_u32(value, 0, UINT32_MAX - 1, &id, NULL) < 0) {
        err_set(err, ERR_INVALID, "--mount: invalid %s '%s'", key == KEY_UID ? "uid" : "gid",
                value);
        return err_hint(err, "Use a number between 0 and %u.", UINT32_MAX - 1);
    }
    dockerfile_mount_replace(key == KEY_MODE  ? &m->mode
                             : key == KEY_UID ? &m->uid
                                              : &m->gid,
                             value);
    return 0;
}

static int dockerfile_mount_set_access(struct mount_state *st, enum mount_key key,
                                       const char *value, struct err *err)
{
    bool on = true;
    int r = value ? dockerfile_mount_read_bool(value, &on, err) : 0;

    if (r < 0)
        return r;
    st->m->read_only = key == KEY_READONLY ? on : !on;
    st->access_given = true;
    return 0;
}

static int dockerfile_mount_set_checked(struct mount_state *st, enum mount_key key,
                                        const char *value, struct err *err)
{
    struct dockerfile_mount *m = st->m;
    uint64_t bytes;
    size_t found = 0;
    int r;

    switch ((unsigned)key) {
    case KEY_TYPE:
        r = dockerfile_mount_find_word("type", value, type_names, ARRAY_SIZE(type_names), &found,
                                       err);
        if (r < 0)
            return r;
        m->type = (enum mount_type)found;
        return 0;
    case KEY_SHARING:
        r = dockerfile_mount_find_word("sharing", value, sharing_names, ARRAY_SIZE(sharing_names),
                                       &found, err);
        if (r < 0)
            return r;
        dockerfile_mount_replace(&m->sharing, sharing_names[found]);
        return 0;
    case KEY_REQUIRED:
        if (m->type != MOUNT_SECRET && m->type != MOUNT_SSH)
            return dockerfile_mount_not_for(m, "required", err);
        return dockerfile_mount_read_bool(value, &m->required, err);
    case KEY_SIZE:
        if (m->type != MOUNT_TMPFS)
            return dockerfile_mount_not_for(m, "size", err);
        dockerfile_mount_replace(&m->size, value);
        return parse_size(value, &bytes, err);
    default:
        return dockerfile_mount_set_numbers(m, key, value, err);
    }
}

static int dockerfile_mount_set_key(struct mount_state *st, enum mount_key key, const char *value,
                                    struct err *err)
{
    struct dockerfile_mount *m = st->m;

    switch (key) {
    case KEY_FROM:
        dockerfile_mount_replace(&m->from, value);
        return 0;
    case KEY_SOURCE:
        dockerfile_mount_replace(&m->source, value);
        return 0;
    case KEY_TARGET:
        dockerfile_mount_replace(&m->target, value);
        return 0;
    case KEY_ID:
        dockerfile_mount_replace(&m->id, value);
        return 0;
    case KEY_ENV:
        dockerfile_mount_replace(&m->env, value);
        return 0;
    case KEY_READONLY:
    case KEY_READWRITE:
        return dockerfile_mount_set_access(st, key, value, err);
    case KEY_TYPE:
    case KEY_REQUIRED:
    case KEY_SHARING:
    case KEY_MODE:
    case KEY_UID:
    case KEY_GID:
    case KEY_SIZE:
        return dockerfile_mount_set_checked(st, key, value, err);
    }
    return 0;
}

/* A word without '=': only the boolean keys. */
static int dockerfile_mount_set_switch(struct mount_state *st, const char *field, struct err *err)
{
    enum mount_key key;
    int r = dockerfile_mount_find_key(field, strlen(field), &key, err);

    if (r < 0)
        return r;
    if (key == KEY_READONLY || key == KEY_READWRITE)
        return dockerfile_mount_set_access(st, key, NULL, err);
    if (key == KEY_REQUIRED)
        return dockerfile_mount_set_checked(st, key, "true", err);
    return err_set(err, ERR_INVALID, "--mount: '%s' needs a value, as in %s=VALUE", field, field);
}

static int dockerfile_mount_set_field(struct mount_state *st, const char *field, struct err *err)
{
    const char *equals = strchr(field, '=');
    enum mount_key key;
    int r;

    if (!equals)
        return dockerfile_mount_set_switch(st, field, err);
    r = dockerfile_mount_find_key(field, (size_t)(equals - field), &key, err);
    if (r < 0)
        return r;
    if (st->defer && strchr(equals + 1, '$')) {
        if (key == KEY_FROM) {
            err_set(err, ERR_INVALID, "--mount: 'from' cannot contain variables");
            return err_hint(err, "Name the image with FROM … AS, where global ARGs are allowed.");
        }
        if (key != KEY_TARGET && key != KEY_SOURCE && key != KEY_ID) {
            st->deferred = true;
            return 0;
        }
    }
    return dockerfile_mount_set_key(st, key, equals + 1, err);
}

/* ---- combinations ---- */

static int dockerfile_mount_check(struct dockerfile_mount *m, const struct mount_state *st,
                                  struct err *err)
{
    bool owned = m->type == MOUNT_SECRET || m->type == MOUNT_SSH || m->type == MOUNT_CACHE;

    if (!owned && (m->mode || m->uid || m->gid))
        return dockerfile_mount_not_for(m, m->mode ? "mode" : m->uid ? "uid" : "gid", err);
    if (m->sharing && m->type != MOUNT_CACHE)
        return dockerfile_mount_not_for(m, "sharing", err);
    if (m->env && m->type != MOUNT_SECRET)
        return dockerfile_mount_not_for(m, "env", err);
    if (!st->access_given)
        m->read_only = m->type != MOUNT_CACHE && m->type != MOUNT_TMPFS;
    if (m->type != MOUNT_SECRET)
        return 0;
    if (m->from)
        return dockerfile_mount_not_for(m, "from", err);
    if (!m->source && !m->target && !m->id && !m->env)
        return err_set(err, ERR_INVALID, "--mount: a secret needs id, source or target");
    if (m->source && m->id)
        return err_set(err, ERR_INVALID, "--mount: a secret takes id or source, not both");
    return 0;
}

static int dockerfile_mount_set_all(struct mount_state *st, const char *value, struct err *err)
{
    if (!*value)
        return err_set(err, ERR_INVALID, "--mount has no options");
    for (;; value++) {
        _cleanup_free_ char *field = NULL;
        int r = dockerfile_mount_read_field(&value, &field, err);

        if (r < 0)
            return r;
        r = dockerfile_mount_set_field(st, field, err);
        if (r < 0)
            return r;
        if (!*value)
            return st->deferred ? 0 : dockerfile_mount_check(st->m, st, err);
    }
}

int mount_parse(const char *value, bool defer, struct dockerfile_mount *ret, struct err *err)
{
    struct dockerfile_mount m = {.type = MOUNT_BIND};
    struct mount_state st = {.m = &m, .defer = defer};
    int r = dockerfile_mount_set_all(&st, value, err);

    if (r < 0) {
        mount_done(&m);
        return r;
    }
    *ret = m;
    return 0;
}
