#include "packages/config.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "version.h"

enum { CA_MAX = 4 << 20 };

/* The two public registries. The files of PyPI are on another host; its index pages link to it. */
static const char default_upstreams[] =
    "[{\"name\":\"pypi\",\"type\":\"pypi\",\"url\":\"https://pypi.org/simple/\"},"
    "{\"name\":\"npm\",\"type\":\"npm\",\"url\":\"https://registry.npmjs.org/\"}]";

struct upstream_fields {
    const char *name, *type, *url, *user, *password, *token, *ca_file;
    bool private_ok, http_ok;
    json_t *names, *hosts;
};

static int packages_config_read_upstream(const json_t *j, struct upstream_fields *f,
                                         struct err *err)
{
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &f->name},         {"type", JSON_FIELD_STRING, &f->type},
        {"url", JSON_FIELD_STRING, &f->url},           {"user", JSON_FIELD_STRING, &f->user},
        {"password", JSON_FIELD_STRING, &f->password}, {"token", JSON_FIELD_STRING, &f->token},
        {"ca_file", JSON_FIELD_STRING, &f->ca_file},   {"private", JSON_FIELD_BOOL, &f->private_ok},
        {"http", JSON_FIELD_BOOL, &f->http_ok},        {"names", JSON_FIELD_ARRAY, &f->names},
        {"hosts", JSON_FIELD_ARRAY, &f->hosts},
    };

    return json_read(j, "upstreams", fields, ARRAY_SIZE(fields), err);
}

/* The name of an upstream is also the name of a folder. */
static bool packages_config_name_is_folder(const char *s)
{
    size_t len = s ? strlen(s) : 0;

    return len > 0 && len <= 32 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static char *packages_config_authorization(const struct upstream_fields *f)
{
    _cleanup_free_ char *plain = NULL, *b64 = NULL;
    size_t len;

    if (f->token)
        return xasprintf("Bearer %s", f->token);
    if (!f->user && !f->password)
        return NULL;
    plain = xasprintf("%s:%s", f->user ? f->user : "", f->password ? f->password : "");
    len = strlen(plain);
    b64 = xmalloc(4 * ((len + 2) / 3) + 1);
    EVP_EncodeBlock((unsigned char *)b64, (const unsigned char *)plain, (int)len);
    return xasprintf("Basic %s", b64);
}

static int packages_config_set_address(struct upstream *u, const struct upstream_fields *f,
                                       struct err *err)
{
    char *host = f->url ? fetch_url_host(f->url) : NULL;
    size_t len = f->url ? strlen(f->url) : 0;
    _cleanup_strv_ char **hosts = NULL;
    int r;

    if (!host)
        return err_set(err, ERR_INVALID, "upstream '%s': 'url' is not an https address", f->name);
    u->url = xasprintf("%s%s", f->url, f->url[len - 1] == '/' ? "" : "/");
    strv_push(&u->hosts, host);
    if (!f->http_ok && strncasecmp(f->url, "https://", 8) != 0)
        return err_set(err, ERR_INVALID, "upstream '%s': 'url' does not begin with https://",
                       f->name);
    if (!f->hosts)
        return 0;
    r = json_read_strv(f->hosts, "hosts", &hosts, err);
    if (r < 0)
        return r;
    for (char **h = hosts; h && *h; h++)
        strv_add(&u->hosts, *h);
    return 0;
}

static int packages_config_make_upstream(struct packages_config *c, const struct upstream_fields *f,
                                         struct upstream *u, struct err *err)
{
    int r;

    if (!packages_config_name_is_folder(f->name) || !f->type)
        return err_set(err, ERR_INVALID,
                       "an upstream needs a type and a name (lower-case letters, digits and '-')");
    u->name = xstrdup(f->name);
    r = ecosystem_parse(f->type, &u->eco, err);
    if (r < 0)
        return r;
    r = packages_config_set_address(u, f, err);
    if (r < 0)
        return r;
    r = f->names ? json_read_strv(f->names, "names", &u->names, err) : 0;
    if (r < 0)
        return r;
    r = f->ca_file ? file_read(AT_FDCWD, f->ca_file, CA_MAX, &u->ca_pem, NULL, err) : 0;
    if (r < 0)
        return r;
    u->authorization = packages_config_authorization(f);
    u->private_ok = f->private_ok;
    u->http_ok = f->http_ok;
    u->fetcher = fetcher_new(&(struct fetcher_config){.hosts = u->hosts,
                                                      .private_ok = u->private_ok,
                                                      .http_ok = u->http_ok,
                                                      .authorization = u->authorization,
                                                      .ca_pem = u->ca_pem,
                                                      .connect_timeout = c->connect_timeout,
                                                      .stall_timeout = c->stall_timeout,
                                                      .user_agent = "ripcord/" RIPCORD_VERSION});
    return 0;
}

static int packages_config_read_upstreams(struct packages_config *c, const json_t *list,
                                          struct err *err)
{
    json_t *j;
    size_t i;

    if (json_array_size(list) > UPSTREAMS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d upstreams", UPSTREAMS_MAX);
    json_array_foreach ((json_t *)list, i, j) {
        struct upstream_fields f = {0};
        int r = packages_config_read_upstream(j, &f, err);

        if (r < 0)
            return r;
        for (size_t k = 0; k < c->n_upstreams; k++)
            if (f.name && STREQ(c->upstreams[k].name, f.name))
                return err_set(err, ERR_INVALID, "two upstreams have the name '%s'", f.name);
        r = packages_config_make_upstream(c, &f, &c->upstreams[c->n_upstreams++], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int packages_config_read_offline(const char *s, enum offline *ret, struct err *err)
{
    static const char *const names[] = {"auto", "always", "never"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (STREQ(s, names[i])) {
            *ret = (enum offline)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "field 'offline': '%s' is not auto, always or never", s);
}

static int packages_config_read_policy(struct policy *p, const json_t *deny, uint64_t min_age,
                                       struct err *err)
{
    _cleanup_strv_ char **list = NULL;
    int r = deny ? json_read_strv(deny, "deny", &list, err) : 0;

    if (r < 0)
        return r;
    p->min_age = (int64_t)min_age;
    for (char **d = list; d && *d; d++) {
        r = policy_add_deny(p, *d, err);
        if (r < 0)
            return r;
    }
    policy_seal(p);
    return 0;
}

static int packages_config_read_document(const json_t *doc, struct packages_config *c,
                                         struct err *err)
{
    uint64_t uid = UINT64_MAX, gid = UINT64_MAX, min_age = 0, connect = 10, stall = 30;
    const char *folder = NULL, *offline = "auto";
    json_t *deny = NULL, *upstreams = NULL;
    _cleanup_json_ json_t *defaults = json_loads(default_upstreams, 0, NULL);
    const struct json_field fields[] = {
        {"folder", JSON_FIELD_STRING, &folder},
        {"uid", JSON_FIELD_U64, &uid},
        {"gid", JSON_FIELD_U64, &gid},
        {"budget", JSON_FIELD_U64, &c->budget},
        {"artifact_max", JSON_FIELD_U64, &c->artifact_max},
        {"metadata_max", JSON_FIELD_U64, &c->metadata_max},
        {"metadata_budget", JSON_FIELD_U64, &c->metadata_budget},
        {"metadata_life", JSON_FIELD_U64, &c->metadata_life},
        {"offline", JSON_FIELD_STRING, &offline},
        {"min_age", JSON_FIELD_U64, &min_age},
        {"deny", JSON_FIELD_ARRAY, &deny},
        {"connections_max", JSON_FIELD_U64, &c->connections_max},
        {"requests_per_second", JSON_FIELD_U64, &c->requests_per_second},
        {"connect_timeout", JSON_FIELD_U64, &connect},
        {"stall_timeout", JSON_FIELD_U64, &stall},
        {"upstreams", JSON_FIELD_ARRAY, &upstreams},
    };
    int r = json_read(doc, NULL, fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    if (!folder || folder[0] != '/')
        return err_set(err, ERR_INVALID, "field 'folder' is not an absolute path");
    c->folder = xstrdup(folder);
    c->change_user = uid != UINT64_MAX;
    c->uid = (uint32_t)uid;
    c->gid = (uint32_t)(gid == UINT64_MAX ? uid : gid);
    c->connect_timeout = MIN(connect, UINT64_C(600)) * USEC_PER_SEC;
    c->stall_timeout = MIN(stall, UINT64_C(600)) * USEC_PER_SEC;
    c->artifact_max = MIN(c->artifact_max, c->budget);
    r = packages_config_read_offline(offline, &c->offline, err);
    if (r < 0)
        return r;
    r = packages_config_read_policy(&c->policy, deny, min_age, err);
    if (r < 0)
        return r;
    return packages_config_read_upstreams(c, upstreams ? upstreams : defaults, err);
}

int config_parse(const char *text, size_t len, struct packages_config *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the configuration of the package cache", text, len, &doc, err);

    *ret = (struct packages_config){
        .budget = GIB(20),
        .artifact_max = GIB(2),
        .metadata_budget = GIB(2),
        .metadata_max = MIB(64),
        .metadata_life = 300,
        .connections_max = 64,
        .requests_per_second = 200,
    };
    if (r < 0)
        return r;
    r = packages_config_read_document(doc, ret, err);
    if (r < 0)
        config_done(ret);
    return r;
}

void config_done(struct packages_config *c)
{
    for (size_t i = 0; i < c->n_upstreams; i++) {
        struct upstream *u = &c->upstreams[i];

        fetcher_free(u->fetcher);
        free(u->name);
        free(u->url);
        strv_free(u->names);
        strv_free(u->hosts);
        free(u->authorization);
        free(u->ca_pem);
    }
    policy_done(&c->policy);
    free(c->folder);
    *c = (struct packages_config){0};
}

/*
 * An upstream that claims a name serves it alone. A name of a private index is never asked of
 * another upstream, even when the private index does not have the package or is down.
 */
struct upstream *config_route(struct packages_config *c, enum ecosystem eco, const char *name)
{
    struct upstream *other = NULL;

    for (size_t i = 0; i < c->n_upstreams; i++) {
        struct upstream *u = &c->upstreams[i];

        if (u->eco != eco)
            continue;
        if (!u->names && !other)
            other = u;
        for (char **p = u->names; p && *p; p++)
            if (name_matches(*p, name))
                return u;
    }
    return other;
}
