#include "packages/npm-page.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"

enum { VERSIONS_MAX = 100000, URL_MAX = 2048 };

/* The fields of a version in the abbreviated form, as npm documents it. */
static const char *const short_fields[] = {
    "name",
    "version",
    "deprecated",
    "dependencies",
    "bin",
    "devDependencies",
    "optionalDependencies",
    "bundleDependencies",
    "engines",
    "peerDependencies",
    "bundledDependencies",
    "peerDependenciesMeta",
    "os",
    "cpu",
    "libc",
    "acceptDependencies",
    "dist",
    "directories",
    "_hasShrinkwrap",
    "hasInstallScript",
    "funding",
};

struct npm_making {
    const struct npm_input *in;
    const struct policy *policy;
    int64_t now;
    const json_t *times;
    struct buf *files;
    char last_reason[POLICY_REASON_MAX];
};

static void npm_numbers_of(const char *s, unsigned long ret[3], bool *pre)
{
    char *end;

    for (int i = 0; i < 3; i++) {
        ret[i] = strtoul(s, &end, 10);
        s = *end == '.' ? end + 1 : end;
    }
    *pre = *s == '-';
}

int npm_version_cmp(const char *a, const char *b)
{
    unsigned long x[3], y[3];
    bool pre_x, pre_y;

    npm_numbers_of(a, x, &pre_x);
    npm_numbers_of(b, y, &pre_y);
    if (pre_x != pre_y)
        return pre_x ? -1 : 1;
    for (int i = 0; i < 3; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return strcmp(a, b);
}

/* -- one version -- */

static bool npm_digest_of(const json_t *dist, struct digest *ret)
{
    const char *sri = json_string_value(json_object_get(dist, "integrity"));
    const char *sha1 = json_string_value(json_object_get(dist, "shasum"));

    if (sri && digest_from_sri(sri, ret))
        return true;
    return sha1 && digest_from_hex(DIGEST_SHA1, sha1, ret);
}

/* Fills the line for the list of files; false when the version must not be served. */
static bool npm_look_at(struct npm_making *m, const char *version, const json_t *v,
                        struct page_file *f)
{
    const json_t *dist = json_object_get(v, "dist");
    const char *url = json_string_value(json_object_get(dist, "tarball"));
    struct policy_item item = {.eco = ECO_NPM, .name = m->in->name, .version = version};

    if (!name_version(version) || !url || strlen(url) > URL_MAX || !npm_digest_of(dist, &f->digest))
        return false;
    f->version = version;
    f->uploaded = policy_parse_time(json_string_value(json_object_get(m->times, version)));
    item.uploaded = f->uploaded;
    return !policy_denies(m->policy, &item, m->now, m->last_reason);
}

static int npm_keep_version(struct npm_making *m, const char *version, json_t *v,
                            struct page_file *f)
{
    json_t *dist = json_object_get(v, "dist");
    const char *bare = name_npm_bare(m->in->name);
    _cleanup_free_ char *file = xasprintf("%s-%s.tgz", bare, version);
    _cleanup_free_ char *link = xasprintf(NPM_BASE "/npm/%s/-/%s", m->in->name, file);
    _cleanup_free_ char *url =
        fetch_url_join(m->in->url, json_string_value(json_object_get(dist, "tarball")));
    int r = 0;

    f->name = file;
    f->url = url;
    if (url)
        r = page_file_add(m->files, f);
    json_object_set_new(dist, "tarball", json_string(link));
    return r;
}

static json_t *npm_short_version(json_t *v)
{
    json_t *s = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(short_fields); i++)
        if (json_object_get(v, short_fields[i]))
            json_object_set(s, short_fields[i], json_object_get(v, short_fields[i]));
    return s;
}

static int npm_make_versions(struct npm_making *m, json_t *versions, json_t *ret)
{
    const char *version;
    json_t *v;

    json_object_foreach (versions, version, v) {
        struct page_file f = {0};

        if (!npm_look_at(m, version, v, &f))
            continue;
        if (npm_keep_version(m, version, v, &f) < 0)
            return -ERR_LIMIT;
        if (m->in->abbreviate)
            json_object_set_new(ret, version, npm_short_version(v));
        else
            json_object_set(ret, version, v);
    }
    return 0;
}

/* -- the document -- */

/* `latest` moves to the newest version that is left; other tags of missing versions are removed. */
static json_t *npm_make_tags(json_t *tags, json_t *versions)
{
    json_t *ret = json_object(), *target, *v;
    const char *tag, *version, *newest = NULL;

    json_object_foreach (versions, version, v)
        if (!newest || npm_version_cmp(version, newest) > 0)
            newest = version;
    json_object_foreach (tags, tag, target)
        if (json_is_string(target) && json_object_get(versions, json_string_value(target)))
            json_object_set(ret, tag, target);
    if (newest && !json_object_get(ret, "latest"))
        json_object_set_new(ret, "latest", json_string(newest));
    return ret;
}

static json_t *npm_short_document(const struct npm_input *in, const json_t *doc)
{
    json_t *s = json_object(), *modified = json_object_get(doc, "modified");

    if (!modified)
        modified = json_object_get(json_object_get(doc, "time"), "modified");
    json_object_set_new(s, "name", json_string(in->name));
    if (modified)
        json_object_set(s, "modified", modified);
    return s;
}

static int npm_finish(struct npm_making *m, json_t *doc, json_t *versions, struct buf *ret,
                      struct err *err)
{
    _cleanup_json_ json_t *kept = json_object();
    _cleanup_json_ json_t *out = NULL;
    _cleanup_free_ char *text = NULL;

    if (npm_make_versions(m, versions, kept) < 0)
        return err_set(err, ERR_LIMIT, "'%s' has too many versions", m->in->name);
    if (json_object_size(kept) == 0 && m->last_reason[0])
        return err_set(err, ERR_DENIED, "%s", m->last_reason);
    out = m->in->abbreviate ? npm_short_document(m->in, doc) : json_incref(doc);
    json_object_set_new(out, "dist-tags", npm_make_tags(json_object_get(doc, "dist-tags"), kept));
    json_object_set(out, "versions", kept);
    text = json_to_text(out, false);
    if (buf_append_str(ret, text) < 0)
        return err_set(err, ERR_LIMIT, "the index page of '%s' is too long", m->in->name);
    return 0;
}

int npm_make_page(const struct npm_input *in, const struct policy *policy, int64_t now,
                  struct page_draft *ret, struct err *err)
{
    struct npm_making m = {.in = in, .policy = policy, .now = now};
    struct buf *body = page_draft_add(ret, "json");
    _cleanup_json_ json_t *doc = NULL;
    json_error_t je;
    json_t *versions;

    /* A readme may hold anything, even NUL. jansson limits the nesting. */
    doc = json_loadb(in->text, in->len, JSON_ALLOW_NUL, &je);
    if (!doc)
        return err_set(err, ERR_INVALID, "the index page of '%s' is not valid JSON: %s", in->name,
                       je.text);
    versions = json_object_get(doc, "versions");
    if (!json_is_object(versions) || json_object_size(versions) > VERSIONS_MAX)
        return err_set(err, ERR_INVALID, "the index page of '%s' has no versions", in->name);
    json_object_del(doc, "readme");
    m.times = json_object_get(doc, "time");
    m.files = page_draft_add(ret, PAGE_FILES);
    return npm_finish(&m, doc, versions, body, err);
}

int npm_set_host(const struct buf *body, const char *host, struct buf *ret, struct err *err)
{
    const char *p = buf_data(body), *end = p + body->len, *at;
    size_t n = strlen(NPM_BASE);

    while ((at = memmem(p, (size_t)(end - p), NPM_BASE, n))) {
        if (buf_append(ret, p, (size_t)(at - p)) < 0 || buf_appendf(ret, "http://%s", host) < 0)
            return err_set(err, ERR_LIMIT, "the index page is too long");
        p = at + n;
    }
    if (buf_append(ret, p, (size_t)(end - p)) < 0)
        return err_set(err, ERR_LIMIT, "the index page is too long");
    return 0;
}
