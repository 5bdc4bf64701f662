/*
 * See plan.h. One table has the tag, type and limit of each field; writing and reading both use it.
 * proto_plan_check() checks what the table cannot express (mounts, relations between fields).
 */
#include "proto/plan.h"

#include <limits.h>
#include <linux/filter.h>
#include <net/if.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/command-size.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum field_kind { FIELD_STR, FIELD_U64, FIELD_U32, FIELD_BOOL };

enum {
    PLAN_ID_MIN = 100000,    /* no id below this is ever mapped into a sandbox */
    PLAN_OWN_ID_MIN = 10000, /* below are the users of services and people */
};

/* clang-format off */
static const struct plan_field {
    uint16_t tag;
    enum field_kind kind;
    const char *name;
    size_t offset;
    uint64_t max; /* number: largest value; string: longest */
} fields[] = {
#define FIELD(tag, kind, member, max) {PLAN_TAG_##tag, FIELD_##kind, #member, offsetof(struct plan, member), max}
    FIELD(SANDBOX,        STR,  sandbox_id,     16),
    FIELD(ROOT,           STR,  root_id,        16),
    FIELD(NAME,           STR,  name,           63),
    FIELD(HASH,           STR,  hash,           64),
    FIELD(RUN_DIR,        STR,  run_dir,        PATH_MAX - 64),
    FIELD(DATA_DIR,       STR,  data_dir,       PATH_MAX - 64),
    FIELD(EXEC_DIR,       STR,  exec_dir,       PATH_MAX - 64),
    FIELD(LOWER_DIR,      STR,  lower_dir,      PATH_MAX - 64),
    FIELD(IMAGE,          U32,  image,          PLAN_IMAGE_ROOTFS),
    FIELD(ID_BASE,        U32,  id_base,        UINT32_MAX - PLAN_ID_COUNT),
    FIELD(MEMORY,         U64,  memory,         INT64_MAX),
    FIELD(CPU_MILLI,      U32,  cpu_milli,      1024000),
    FIELD(PIDS,           U32,  pids,           4194304),
    FIELD(NOFILE,         U32,  nofile,         1048576),
    FIELD(TMP_SIZE,       U64,  tmp_size,       INT64_MAX),
    FIELD(RUN_SIZE,       U64,  run_size,       INT64_MAX),
    FIELD(SCRATCH_SIZE,   U64,  scratch_size,   INT64_MAX),
    FIELD(SHM_SIZE,       U64,  shm_size,       INT64_MAX),
    FIELD(USER,           STR,  user,           64),
    FIELD(WORKDIR,        STR,  workdir,        PATH_MAX - 1),
    FIELD(JOURNAL_BUDGET, U64,  journal_budget, INT64_MAX),
    FIELD(EPHEMERAL,      BOOL, ephemeral,      1),
    FIELD(STRICT,         BOOL, strict,         1),
    FIELD(BARE,           BOOL, bare,           1),
    FIELD(CGROUP_PARENT,  STR,  cgroup_parent,  PLAN_CGROUP_MAX),
    FIELD(NETWORK,        U32,  network,        PLAN_NETWORK_OPEN),
    FIELD(REQUIRED,       U32,  required,       UINT32_MAX),
    FIELD(NET_IFNAME,     STR,  net_ifname,     IFNAMSIZ - 1),
    FIELD(NET_HOST,       U32,  net_host,       UINT32_MAX),
    FIELD(NET_SANDBOX,        U32,  net_sandbox,        UINT32_MAX),
    FIELD(NET_MTU,        U32,  net_mtu,        65535),
    FIELD(RESOLV_CONF,    STR,  resolv_conf,    4096),
    FIELD(SUB_UID,        U32,  sub_uid,        UINT32_MAX - PLAN_ID_COUNT),
    FIELD(SUB_GID,        U32,  sub_gid,        UINT32_MAX - PLAN_ID_COUNT),
    FIELD(DISK_IMAGE,     STR,  disk_image,     PATH_MAX - 64),
    FIELD(DISK_QUOTA,     BOOL, disk_quota,     1),
    FIELD(CACHE_BASE,     STR,  cache_base,     PATH_MAX - 64),
    FIELD(CACHE_OWNER,    U32,  cache_owner,    PLAN_ID_COUNT - 1),
    FIELD(CONFINED,       BOOL, confined,       1),
    FIELD(OWN_ID,         U32,  own_id,         INT32_MAX),
    FIELD(OWN_GROUP,      U32,  own_group,      INT32_MAX),
    FIELD(PACKAGES_PORT,  U32,  packages_port,  UINT16_MAX),
    FIELD(MAY_CONFINE,    BOOL, may_confine,    1),
#undef FIELD
};
/* clang-format on */

_Static_assert(sizeof(enum plan_image) == 4 && sizeof(enum plan_network) == 4,
               "enums travel as u32");

void plan_done(struct plan *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].kind == FIELD_STR)
            free(*(char **)((char *)p + fields[i].offset));
    for (size_t i = 0; i < p->n_mounts; i++) {
        free(p->mounts[i].source);
        free(p->mounts[i].target);
    }
    free(p->mounts);
    for (size_t i = 0; i < p->n_caches; i++) {
        free(p->caches[i].tool);
        free(p->caches[i].target);
        free(p->caches[i].source);
    }
    free(p->caches);
    strv_free(p->layers);
    strv_free(p->env);
    strv_free(p->readable);
    free(p->ports);
    free(p->seccomp);
    *p = (struct plan)PLAN_INIT;
}

/* ---- checks ---- */

static bool proto_plan_is_hex_id(const char *s)
{
    return s && strlen(s) == 16 && strspn(s, "0123456789abcdef") == 16;
}

/* Absolute, without empty, "." or ".." parts, and without a trailing slash (except "/"). */
/* "a/b": no empty part, and neither "." nor "..". */
static bool proto_plan_is_clean_relative(const char *s)
{
    for (;; s++) {
        size_t n = strcspn(s, "/");

        if (n == 0 || n > NAME_MAX || (n == 1 && s[0] == '.') ||
            (n == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += n;
        if (!*s)
            return true;
    }
}

static bool proto_plan_is_clean_path(const char *s)
{
    if (!s || *s != '/')
        return false;
    return !s[1] || proto_plan_is_clean_relative(s + 1);
}

static int proto_plan_check_path(const char *what, const char *s, struct err *err)
{
    if (!proto_plan_is_clean_path(s))
        return err_set(err, ERR_INVALID, "plan: %s '%s' is not a clean absolute path", what,
                       s ? s : "");
    return 0;
}

static int proto_plan_check_folders(const struct plan *p, struct err *err)
{
    int r;

    r = proto_plan_check_path("run_dir", p->run_dir, err);
    if (r < 0)
        return r;
    r = proto_plan_check_path("data_dir", p->data_dir, err);
    if (r < 0)
        return r;
    r = proto_plan_check_path("exec_dir", p->exec_dir, err);
    if (r < 0)
        return r;
    r = proto_plan_check_path("lower_dir", p->lower_dir, err);
    if (r < 0)
        return r;
    if (p->disk_image)
        r = proto_plan_check_path("disk_image", p->disk_image, err);
    if (r < 0)
        return r;
    if (p->disk_image && !p->id_base)
        return err_set(err, ERR_INVALID, "plan: a disk image needs a range of ids");
    if ((!p->workdir || *p->workdir != '/'))
        return err_set(err, ERR_INVALID, "plan: workdir '%s' is not absolute",
                       p->workdir ? p->workdir : "");
    return 0;
}

static const char digits[] = "0123456789abcdef";

static const char *proto_plan_after(const char *s, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(s, prefix, len) == 0 ? s + len : "";
}

/* "<64 hex digits>/fs", the image store's names. Layers of an image on `host` are named from the
 * folder above the store, and the lowest is "host/g-<16 hex digits>". */
static bool proto_plan_is_layer_name(const struct plan *p, size_t i)
{
    const char *s = p->layers[i];

    if (p->image == PLAN_IMAGE_HOST && i == p->n_layers - 1) {
        s = proto_plan_after(s, "host/g-");
        return strspn(s, digits) == 16 && !s[16];
    }
    if (p->image == PLAN_IMAGE_HOST)
        s = proto_plan_after(s, "store/layers/");
    return strspn(s, digits) == 64 && STREQ(s + 64, "/fs");
}

static int proto_plan_check_layers(const struct plan *p, struct err *err)
{
    if (p->n_layers != strv_len(p->layers) || p->n_layers > PLAN_LAYERS_MAX)
        return err_set(err, ERR_LIMIT, "plan: too many layers (%zu, at most %d)",
                       strv_len(p->layers), PLAN_LAYERS_MAX);
    for (size_t i = 0; i < p->n_layers; i++)
        if (!proto_plan_is_layer_name(p, i))
            return err_set(err, ERR_INVALID, "plan: invalid layer '%s'", p->layers[i]);
    return 0;
}

static int proto_plan_check_mounts(const struct plan *p, struct err *err)
{
    if (p->n_mounts > PLAN_MOUNTS_MAX)
        return err_set(err, ERR_LIMIT, "plan: too many mounts (%zu, at most %d)", p->n_mounts,
                       PLAN_MOUNTS_MAX);
    for (size_t i = 0; i < p->n_mounts; i++) {
        int r;

        r = proto_plan_check_path("mount source", p->mounts[i].source, err);
        if (r < 0)
            return r;
        r = proto_plan_check_path("mount target", p->mounts[i].target, err);
        if (r < 0)
            return r;
        if (STREQ(p->mounts[i].target, "/"))
            return err_set(err, ERR_INVALID, "plan: mount target '/' would hide the sandbox");
    }
    return 0;
}

static int proto_plan_check_user_and_env(const struct plan *p, struct err *err)
{
    int r;

    if (!p->user)
        return err_set(err, ERR_INVALID, "plan: user is missing");
    r = parse_user(p->user, err);
    if (r < 0)
        return err_wrap(err, "plan: user");
    if (command_size(p->env) > COMMAND_MAX || command_oversized(p->env))
        return err_set(err, ERR_LIMIT,
                       "the variables of the sandbox and its image are too large (%zu bytes, at "
                       "most %d in all and %d in one)",
                       command_size(p->env), COMMAND_MAX, COMMAND_STRING_MAX - 1);
    for (char **e = p->env; e && *e; e++) {
        r = parse_env(*e, err);
        if (r < 0)
            return err_wrap(err, "plan: env");
    }
    return 0;
}

static bool proto_plan_is_plain_name(const char *s)
{
    return !s || (*s && *s != '.' &&
                  strspn(s, "abcdefghijklmnopqrstuvwxyz"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(s));
}

static int proto_plan_check_cache(const struct plan *p, const struct plan_cache *c, struct err *err)
{
    bool below = c->kind == PLAN_CACHE_LAYERED || c->kind == PLAN_CACHE_READONLY;
    int r;

    if (!c->tool || !*c->tool || !proto_plan_is_plain_name(c->tool))
        return err_set(err, ERR_INVALID, "plan: invalid cache name '%s'", c->tool ? c->tool : "");
    if (below && !p->cache_base)
        return err_set(err, ERR_INVALID, "plan: cache '%s' has no base", c->tool);
    r = proto_plan_check_path("cache target", c->target, err);
    if (r < 0)
        return r;
    if (STREQ(c->target, "/"))
        return err_set(err, ERR_INVALID, "plan: cache target '/' would hide the sandbox");
    if (c->kind == PLAN_CACHE_SHARED)
        r = proto_plan_check_path("cache source", c->source, err);
    return r;
}

static int proto_plan_check_caches(const struct plan *p, struct err *err)
{
    int r = p->cache_base ? proto_plan_check_path("cache_base", p->cache_base, err) : 0;

    if (r < 0)
        return r;
    if (p->n_caches > PLAN_CACHES_MAX)
        return err_set(err, ERR_LIMIT, "plan: too many caches (%zu, at most %d)", p->n_caches,
                       PLAN_CACHES_MAX);
    for (size_t i = 0; i < p->n_caches; i++) {
        r = proto_plan_check_cache(p, &p->caches[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int proto_plan_check_ids(const struct plan *p, struct err *err)
{
    if (!proto_plan_is_hex_id(p->sandbox_id) || !proto_plan_is_hex_id(p->root_id))
        return err_set(err, ERR_INVALID, "plan: sandbox and root ids must have 16 hex digits");
    if (!p->name || !name_is_valid(p->name))
        return err_set(err, ERR_INVALID, "plan: invalid name '%s'", p->name ? p->name : "");
    if (p->cgroup_parent && !proto_plan_is_clean_relative(p->cgroup_parent))
        return err_set(err, ERR_INVALID, "plan: invalid cgroup parent '%s'", p->cgroup_parent);
    if (p->id_base && p->id_base < PLAN_ID_MIN)
        return err_set(err, ERR_INVALID, "plan: id range starts at %u, below %d", p->id_base,
                       PLAN_ID_MIN);
    if ((p->sub_uid && (p->id_base || p->sub_uid < PLAN_ID_MIN || p->sub_gid < PLAN_ID_MIN)) ||
        !p->sub_uid != !p->sub_gid)
        return err_set(err, ERR_INVALID, "plan: invalid subordinate ids (uid %u, gid %u)",
                       p->sub_uid, p->sub_gid);
    if (p->seccomp_len % sizeof(struct sock_filter) ||
        p->seccomp_len > PLAN_SECCOMP_MAX * sizeof(struct sock_filter))
        return err_set(err, ERR_INVALID, "plan: invalid seccomp filter size (%zu bytes)",
                       p->seccomp_len);
    return 0;
}

/* An interface name is also part of a path below /proc/sys. */
static int proto_plan_check_network(const struct plan *p, struct err *err)
{
    if (p->network != PLAN_NETWORK_OPEN)
        return p->net_ifname ? err_set(err, ERR_INVALID, "plan: an interface needs network 'open'")
                             : 0;
    if (!p->id_base)
        return err_set(err, ERR_INVALID, "plan: network 'open' needs a range of ids");
    if (!p->net_ifname || !*p->net_ifname || !proto_plan_is_plain_name(p->net_ifname))
        return err_set(err, ERR_INVALID, "plan: invalid interface name '%s'",
                       p->net_ifname ? p->net_ifname : "");
    if (!p->net_host || (p->net_host ^ p->net_sandbox) != 1)
        return err_set(err, ERR_INVALID, "plan: addresses %08x and %08x are not a /31", p->net_host,
                       p->net_sandbox);
    return 0;
}

static int proto_plan_check_ports(const struct plan *p, struct err *err)
{
    size_t sum = 0;

    for (size_t i = 0; i < p->n_ports; i++) {
        const struct plan_ports *r = &p->ports[i];

        if (!r->first || r->first > r->last)
            return err_set(err, ERR_INVALID, "plan: ports %u to %u are not a range", r->first,
                           r->last);
        sum += r->last - r->first + 1U;
    }
    if (p->n_ports > PLAN_PORTS_MAX || sum > PLAN_PORTS_SUM_MAX)
        return err_set(err, ERR_LIMIT, "plan: too many ports (%zu, at most %d)", sum,
                       PLAN_PORTS_SUM_MAX);
    return 0;
}

/* The plan of a confined sandbox has nothing that needs namespaces. */
static int proto_plan_check_confined(const struct plan *p, struct err *err)
{
    int r;

    if (!p->confined)
        return p->own_id || p->own_group || p->n_ports || p->packages_port || p->readable
                   ? err_set(err, ERR_INVALID, "plan: ports and ids of a confined sandbox only")
                   : 0;
    if (p->id_base || p->sub_uid || p->n_layers || p->disk_image || p->cache_base || p->n_caches ||
        p->network == PLAN_NETWORK_OPEN || p->bare || p->strict)
        return err_set(err, ERR_INVALID, "plan: a confined sandbox has no namespaces");
    if (!p->own_id != !p->own_group ||
        (p->own_id && (p->own_id < PLAN_OWN_ID_MIN || p->own_group < PLAN_OWN_ID_MIN)))
        return err_set(err, ERR_INVALID, "plan: invalid own ids (user %u, group %u)", p->own_id,
                       p->own_group);
    for (size_t i = 0; i < p->n_mounts; i++)
        if (!STREQ(p->mounts[i].source, p->mounts[i].target))
            return err_set(err, ERR_INVALID, "plan: mount '%s' has another target",
                           p->mounts[i].source);
    if (strv_len(p->readable) > PLAN_READABLE_MAX)
        return err_set(err, ERR_LIMIT, "plan: too many readable paths (%zu, at most %d)",
                       strv_len(p->readable), PLAN_READABLE_MAX);
    for (char **path = p->readable; path && *path; path++) {
        r = proto_plan_check_path("readable path", *path, err);
        if (r < 0)
            return r;
    }
    return proto_plan_check_ports(p, err);
}

static int proto_plan_check(const struct plan *p, struct err *err)
{
    int r = proto_plan_check_ids(p, err);

    if (r < 0)
        return r;
    r = proto_plan_check_folders(p, err);
    if (r < 0)
        return r;
    r = proto_plan_check_layers(p, err);
    if (r < 0)
        return r;
    r = proto_plan_check_mounts(p, err);
    if (r < 0)
        return r;
    r = proto_plan_check_caches(p, err);
    if (r < 0)
        return r;
    r = proto_plan_check_user_and_env(p, err);
    if (r < 0)
        return r;
    r = proto_plan_check_confined(p, err);
    if (r < 0)
        return r;
    return proto_plan_check_network(p, err);
}

/* ---- writing ---- */

static int proto_plan_put_field(struct sup_writer *w, const struct plan *p,
                                const struct plan_field *f, struct err *err)
{
    const void *at = (const char *)p + f->offset;
    uint64_t v = 0;

    if (f->kind == FIELD_STR) {
        const char *s = *(char *const *)at;

        if (s && strlen(s) > f->max)
            return err_set(err, ERR_INVALID, "plan: %s exceeds %llu bytes", f->name,
                           (unsigned long long)f->max);
        sup_put_str(w, f->tag, s);
        return 0;
    }
    if (f->kind == FIELD_U64)
        v = *(const uint64_t *)at;
    else if (f->kind == FIELD_U32)
        v = *(const uint32_t *)at;
    else
        v = *(const bool *)at;
    if (v > f->max)
        return err_set(err, ERR_INVALID, "plan: %s is %llu (at most %llu)", f->name,
                       (unsigned long long)v, (unsigned long long)f->max);
    if (v)
        sup_put_u64(w, f->tag, v);
    return 0;
}

static void proto_plan_put_mounts(struct sup_writer *w, const struct plan *p)
{
    for (size_t i = 0; i < p->n_mounts; i++) {
        const struct plan_mount *m = &p->mounts[i];

        sup_put_u64(w, PLAN_TAG_MOUNT,
                    (m->read_only ? PLAN_MOUNT_RDONLY : 0) | (m->ours ? PLAN_MOUNT_OURS : 0) |
                        (m->no_root_squash ? PLAN_MOUNT_NO_ROOT_SQUASH : 0));
        sup_put_str(w, PLAN_TAG_MOUNT_SOURCE, m->source);
        sup_put_str(w, PLAN_TAG_MOUNT_TARGET, m->target);
        sup_put_u64(w, PLAN_TAG_MOUNT_DEV, m->dev);
        sup_put_u64(w, PLAN_TAG_MOUNT_INO, m->ino);
    }
}

static void proto_plan_put_caches(struct sup_writer *w, const struct plan *p)
{
    for (size_t i = 0; i < p->n_caches; i++) {
        const struct plan_cache *c = &p->caches[i];

        sup_put_u64(w, PLAN_TAG_CACHE, c->kind);
        sup_put_str(w, PLAN_TAG_CACHE_TOOL, c->tool);
        sup_put_str(w, PLAN_TAG_CACHE_TARGET, c->target);
        sup_put_str(w, PLAN_TAG_CACHE_SOURCE, c->source);
    }
}

int plan_encode(const struct plan *p, struct buf *b, struct err *err)
{
    _cleanup_(sup_writer_done) struct sup_writer w = {.buf = BUF_INIT(SUP_PLAN_MAX)};
    int r;

    r = proto_plan_check(p, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        r = proto_plan_put_field(&w, p, &fields[i], err);
        if (r < 0)
            return r;
    }
    proto_plan_put_mounts(&w, p);
    proto_plan_put_caches(&w, p);
    for (size_t i = 0; i < p->n_layers; i++)
        sup_put_str(&w, PLAN_TAG_LAYER, p->layers[i]);
    for (char **e = p->env; e && *e; e++)
        sup_put_str(&w, PLAN_TAG_ENV, *e);
    if (p->seccomp_len)
        sup_put_bytes(&w, PLAN_TAG_SECCOMP, p->seccomp, p->seccomp_len);
    for (size_t i = 0; i < p->n_ports; i++)
        sup_put_u64(&w, PLAN_TAG_PORTS, (uint64_t)p->ports[i].first << 16 | p->ports[i].last);
    for (char **path = p->readable; path && *path; path++)
        sup_put_str(&w, PLAN_TAG_READABLE, *path);
    if (w.overflow || buf_append(b, buf_data(&w.buf), w.buf.len) < 0)
        return err_set(err, ERR_LIMIT, "plan: exceeds %d bytes", SUP_PLAN_MAX);
    return 0;
}

int plan_write(const struct plan *p, int *ret_fd, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SUP_PLAN_MAX);
    int r = plan_encode(p, &b, err);

    return r < 0 ? r : memfd_sealed("ripcord-plan", buf_data(&b), b.len, ret_fd, err);
}

/* ---- reading ---- */

static int proto_plan_take_string(char **dst, const struct sup_value *v, const char *name,
                                  uint64_t max, struct err *err)
{
    if (*dst)
        return err_set(err, ERR_INVALID, "plan: %s is given twice", name);
    if (v->length > max || memchr(v->data, 0, v->length))
        return err_set(err, ERR_INVALID, "plan: %s exceeds %llu bytes or contains a NUL", name,
                       (unsigned long long)max);
    *dst = xstrndup(v->data, v->length);
    return 0;
}

static int proto_plan_take_field(struct plan *p, const struct plan_field *f,
                                 const struct sup_value *v, struct err *err)
{
    void *at = (char *)p + f->offset;

    if (f->kind == FIELD_STR)
        return proto_plan_take_string(at, v, f->name, f->max, err);
    if (v->length != sizeof(v->u64) || v->u64 > f->max)
        return err_set(err, ERR_INVALID, "plan: %s is not a number up to %llu", f->name,
                       (unsigned long long)f->max);
    if (f->kind == FIELD_U64)
        *(uint64_t *)at = v->u64;
    else if (f->kind == FIELD_U32)
        *(uint32_t *)at = (uint32_t)v->u64;
    else
        *(bool *)at = v->u64 != 0;
    return 0;
}

static int proto_plan_take_mount(struct plan *p, const struct sup_value *v, struct err *err)
{
    struct plan_mount *m;
    bool number = v->tag != PLAN_TAG_MOUNT_SOURCE && v->tag != PLAN_TAG_MOUNT_TARGET;

    if (number && v->length != sizeof(v->u64))
        return err_set(err, ERR_INVALID, "plan: mount field %u is not a number", v->tag);
    if (v->tag == PLAN_TAG_MOUNT) {
        if (p->n_mounts == PLAN_MOUNTS_MAX)
            return err_set(err, ERR_LIMIT, "plan: more than %d mounts", PLAN_MOUNTS_MAX);
        p->mounts = xreallocarray(p->mounts, p->n_mounts + 1, sizeof(*p->mounts));
        p->mounts[p->n_mounts++] =
            (struct plan_mount){.read_only = (v->u64 & PLAN_MOUNT_RDONLY) != 0,
                                .ours = (v->u64 & PLAN_MOUNT_OURS) != 0,
                                .no_root_squash = (v->u64 & PLAN_MOUNT_NO_ROOT_SQUASH) != 0};
        return 0;
    }
    if (!p->n_mounts)
        return err_set(err, ERR_INVALID, "plan: mount field %u before its mount", v->tag);
    m = &p->mounts[p->n_mounts - 1];
    if (v->tag == PLAN_TAG_MOUNT_SOURCE)
        return proto_plan_take_string(&m->source, v, "mount source", PATH_MAX - 1, err);
    if (v->tag == PLAN_TAG_MOUNT_TARGET)
        return proto_plan_take_string(&m->target, v, "mount target", PATH_MAX - 1, err);
    if (v->tag == PLAN_TAG_MOUNT_DEV)
        m->dev = v->u64;
    else
        m->ino = v->u64;
    return 0;
}

static int proto_plan_take_cache(struct plan *p, const struct sup_value *v, struct err *err)
{
    struct plan_cache *c;

    if (v->tag == PLAN_TAG_CACHE) {
        if (p->n_caches == PLAN_CACHES_MAX)
            return err_set(err, ERR_LIMIT, "plan: more than %d caches", PLAN_CACHES_MAX);
        if (v->length != sizeof(v->u64) || v->u64 >= PLAN_CACHE_KINDS)
            return err_set(err, ERR_INVALID, "plan: unknown cache kind");
        p->caches = xreallocarray(p->caches, p->n_caches + 1, sizeof(*p->caches));
        p->caches[p->n_caches++] = (struct plan_cache){.kind = (enum plan_cache_kind)v->u64};
        return 0;
    }
    if (!p->n_caches)
        return err_set(err, ERR_INVALID, "plan: cache field %u before its cache", v->tag);
    c = &p->caches[p->n_caches - 1];
    if (v->tag == PLAN_TAG_CACHE_TOOL)
        return proto_plan_take_string(&c->tool, v, "cache tool", NAME_MAX, err);
    if (v->tag == PLAN_TAG_CACHE_TARGET)
        return proto_plan_take_string(&c->target, v, "cache target", PATH_MAX - 1, err);
    return proto_plan_take_string(&c->source, v, "cache source", PATH_MAX - 1, err);
}

static int proto_plan_take_ports(struct plan *p, const struct sup_value *v, struct err *err)
{
    if (v->length != sizeof(v->u64) || v->u64 > UINT32_MAX || p->n_ports == PLAN_PORTS_MAX)
        return err_set(err, ERR_INVALID, "plan: invalid range of ports, or more than %d of them",
                       PLAN_PORTS_MAX);
    p->ports = xreallocarray(p->ports, p->n_ports + 1, sizeof(*p->ports));
    p->ports[p->n_ports++] =
        (struct plan_ports){(uint16_t)(v->u64 >> 16), (uint16_t)(v->u64 & UINT16_MAX)};
    return 0;
}

static int proto_plan_take_value(struct plan *p, const struct sup_value *v, struct err *err)
{
    char *text = NULL;
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].tag == v->tag)
            return proto_plan_take_field(p, &fields[i], v, err);
    if (v->tag >= PLAN_TAG_MOUNT && v->tag <= PLAN_TAG_MOUNT_INO)
        return proto_plan_take_mount(p, v, err);
    if (v->tag >= PLAN_TAG_CACHE && v->tag <= PLAN_TAG_CACHE_SOURCE)
        return proto_plan_take_cache(p, v, err);
    if (v->tag == PLAN_TAG_LAYER) {
        if (p->n_layers == PLAN_LAYERS_MAX)
            return err_set(err, ERR_LIMIT, "plan: more than %d layers", PLAN_LAYERS_MAX);
        r = proto_plan_take_string(&text, v, "layer", NAME_MAX, err);
        if (r < 0)
            return r;
        strv_push(&p->layers, text);
        p->n_layers++;
        return 0;
    }
    if (v->tag == PLAN_TAG_PORTS)
        return proto_plan_take_ports(p, v, err);
    if (v->tag == PLAN_TAG_READABLE) {
        r = proto_plan_take_string(&text, v, "readable path", PATH_MAX - 1, err);
        if (r < 0)
            return r;
        strv_push(&p->readable, text);
        return 0;
    }
    if (v->tag == PLAN_TAG_SECCOMP && !p->seccomp && v->length) {
        p->seccomp = xmemdup(v->data, v->length);
        p->seccomp_len = v->length;
    }
    return 0;
}

static int proto_plan_take_env(struct plan *p, struct strv_list *env, const struct sup_value *v,
                               struct err *err)
{
    char *text = NULL;
    int r = proto_plan_take_string(&text, v, "env", COMMAND_STRING_MAX - 1, err);

    if (r < 0)
        return r;
    strv_list_push(env, text);
    p->env = env->v; /* which frees the list */
    return 0;
}

int plan_decode(const void *data, size_t len, struct plan *ret, struct err *err)
{
    struct sup_reader r = {.p = data, .end = (const char *)data + len};
    _cleanup_(plan_done) struct plan p = PLAN_INIT;
    struct strv_list env = {0};
    struct sup_value v;
    int n;

    while ((n = sup_next(&r, &v, err)) > 0) {
        n = v.tag == PLAN_TAG_ENV ? proto_plan_take_env(&p, &env, &v, err)
                                  : proto_plan_take_value(&p, &v, err);
        if (n < 0)
            return n;
    }
    if (n < 0)
        return n;
    n = proto_plan_check(&p, err);
    if (n < 0)
        return n;
    *ret = p;
    p = (struct plan)PLAN_INIT;
    return 0;
}

int plan_read(int fd, struct plan *ret, struct err *err)
{
    _cleanup_free_ char *data = NULL;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "read the plan's size");
    if (st.st_size <= 0 || st.st_size > SUP_PLAN_MAX)
        return err_set(err, ERR_INVALID, "plan: invalid size (%lld bytes)", (long long)st.st_size);
    data = xmalloc((size_t)st.st_size);
    n = pread(fd, data, (size_t)st.st_size, 0);
    if (n != st.st_size)
        return err_sys(err, n < 0 ? errno : EIO, "read the plan");
    return plan_decode(data, (size_t)n, ret, err);
}

/* ---- from the daemon to the shim ---- */

int plan_give(int control, const int fds[], size_t n, struct err *err)
{
    _cleanup_(sup_writer_done) struct sup_writer w;
    int r;

    sup_begin(&w, SUP_PLAN, 0);
    r = sup_finish(&w, err);
    if (r < 0)
        return r;
    r = fd_send(control, buf_data(&w.buf), w.buf.len, fds, n, 0);
    return r < 0 ? err_sys(err, -r, "send the plan") : 0;
}

int plan_take(int control, int fds[static PLAN_FDS], struct err *err)
{
    char packet[64];
    struct sup_reader reader;
    size_t n = PLAN_FDS;
    ssize_t len = fd_recv(control, packet, sizeof(packet), fds, &n, 0);

    if (len == 0 || len == -ECONNRESET)
        return 0;
    if (len < 0)
        return err_sys(err, (int)-len, "receive the plan");
    if (sup_read(&reader, packet, (size_t)len, err) < 0 || reader.head.type != SUP_PLAN ||
        n <= PLAN_FD_LOG)
        return err_set(err, ERR_INVALID, "the first message is not a plan with its descriptors");
    return (int)n;
}
