#include "packages/pypi-page.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"
#include "packages/html-links.h"

enum { FILES_MAX = 200000, URL_MAX = 2048, TEXT_MAX = 1024 };

/* One file of the page. Strings are owned. */
struct file {
    char *name, *url, *requires_python, *yanked, *upload_time;
    struct digest digest, metadata;
    bool has_metadata;
    uint64_t size;
    int64_t uploaded;
};

struct files {
    const struct pypi_input *in;
    struct file *v;
    size_t n, cap;
};

static void pypi_files_done(struct files *fs)
{
    for (size_t i = 0; i < fs->n; i++) {
        free(fs->v[i].name);
        free(fs->v[i].url);
        free(fs->v[i].requires_python);
        free(fs->v[i].yanked);
        free(fs->v[i].upload_time);
    }
    free(fs->v);
}

static struct file *pypi_add_file(struct files *fs)
{
    if (fs->n == fs->cap) {
        fs->cap = fs->cap ? 2 * fs->cap : 64;
        fs->v = xreallocarray(fs->v, fs->cap, sizeof(*fs->v));
    }
    fs->v[fs->n] = (struct file){.uploaded = -1};
    return &fs->v[fs->n++];
}

static char *pypi_copy_text(const char *s)
{
    return s && strlen(s) <= TEXT_MAX ? xstrdup(s) : NULL;
}

/* A file with a very long reason is still yanked; only the reason is dropped. */
static char *pypi_copy_reason(const char *s)
{
    return xstrdup(strlen(s) <= TEXT_MAX ? s : "");
}

/* The absolute http or https address of a link, or NULL. */
static char *pypi_absolute(const struct pypi_input *in, const char *href)
{
    char *url = strlen(href) <= URL_MAX ? fetch_url_join(in->url, href) : NULL;

    if (url && strncmp(url, "https://", 8) != 0 && strncmp(url, "http://", 7) != 0) {
        free(url);
        url = NULL;
    }
    return url;
}

/* "sha256=<hex>", as in fragments and attributes. */
static bool pypi_sha256_of(const char *s, struct digest *ret)
{
    char hex[65];

    if (!s || strncmp(s, "sha256=", 7) != 0 || strlen(s + 7) < 64)
        return false;
    memcpy(hex, s + 7, 64);
    hex[64] = '\0';
    return (s[71] == '\0' || s[71] == '&') && digest_from_hex(DIGEST_SHA256, hex, ret);
}

/* -- JSON -- */

static void pypi_take_metadata(const json_t *j, struct file *f)
{
    const json_t *m = json_object_get(j, "core-metadata");
    const char *hex;

    if (!m)
        m = json_object_get(j, "data-dist-info-metadata");
    if (!m)
        m = json_object_get(j, "dist-info-metadata");
    hex = json_string_value(json_object_get(m, "sha256"));
    f->has_metadata = hex && digest_from_hex(DIGEST_SHA256, hex, &f->metadata);
}

static void pypi_take_json_file(struct files *fs, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "filename"));
    const char *url = json_string_value(json_object_get(j, "url"));
    const char *hex = json_string_value(json_object_get(json_object_get(j, "hashes"), "sha256"));
    const json_t *yanked = json_object_get(j, "yanked"), *size = json_object_get(j, "size");
    struct digest d;
    struct file *f;
    char *full;

    if (!name || !name_file(name) || !url || !hex || !digest_from_hex(DIGEST_SHA256, hex, &d))
        return;
    full = pypi_absolute(fs->in, url);
    if (!full)
        return;
    f = pypi_add_file(fs);
    f->name = xstrdup(name);
    f->url = full;
    f->digest = d;
    f->requires_python = pypi_copy_text(json_string_value(json_object_get(j, "requires-python")));
    if (json_is_true(yanked) || json_is_string(yanked))
        f->yanked = pypi_copy_reason(json_is_string(yanked) ? json_string_value(yanked) : "");
    f->upload_time = pypi_copy_text(json_string_value(json_object_get(j, "upload-time")));
    f->uploaded = policy_parse_time(f->upload_time);
    if (json_is_integer(size) && json_integer_value(size) > 0)
        f->size = (uint64_t)json_integer_value(size);
    pypi_take_metadata(j, f);
}

static int pypi_parse_json(struct files *fs, json_t **ret_versions, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const json_t *list, *item;
    size_t i;
    int r = json_parse("index page", fs->in->text, fs->in->len, &doc, err);

    if (r < 0)
        return r;
    list = json_object_get(doc, "files");
    if (!json_is_array(list))
        return err_set(err, ERR_INVALID, "index page: no list of files");
    if (json_array_size(list) > FILES_MAX)
        return err_set(err, ERR_LIMIT, "index page: more than %d files", FILES_MAX);
    json_array_foreach ((json_t *)list, i, item)
        pypi_take_json_file(fs, item);
    list = json_object_get(doc, "versions");
    *ret_versions = json_is_array(list) ? json_incref((json_t *)list) : NULL;
    return 0;
}

/* -- HTML -- */

static int pypi_take_link(void *arg, const struct html_link *link, struct err *err _unused_)
{
    struct files *fs = arg;
    const char *hash = strchr(link->href, '#');
    struct digest d;
    struct file *f;
    char *full;

    if (!name_file(link->text) || !hash || !pypi_sha256_of(hash + 1, &d))
        return 0;
    full = pypi_absolute(fs->in, link->href);
    if (!full)
        return 0;
    f = pypi_add_file(fs);
    f->name = xstrdup(link->text);
    f->url = full;
    f->digest = d;
    f->requires_python = pypi_copy_text(link->requires_python);
    f->yanked = link->yanked ? pypi_copy_reason(link->yanked) : NULL;
    f->has_metadata = pypi_sha256_of(link->core_metadata, &f->metadata);
    f->upload_time = pypi_copy_text(link->upload_time);
    f->uploaded = policy_parse_time(f->upload_time);
    return 0;
}

/* -- the rewritten page -- */

static json_t *pypi_file_json(const struct pypi_input *in, const struct file *f)
{
    _cleanup_free_ char *url = xasprintf("../../files/%s/%s/%s", in->name, f->digest.hex, f->name);
    json_t *j = json_pack("{s:s, s:s, s:{s:s}}", "filename", f->name, "url", url, "hashes",
                          "sha256", f->digest.hex);

    if (f->requires_python)
        json_object_set_new(j, "requires-python", json_string(f->requires_python));
    if (f->yanked)
        json_object_set_new(j, "yanked", f->yanked[0] ? json_string(f->yanked) : json_true());
    if (f->has_metadata) {
        json_t *m = json_pack("{s:s}", "sha256", f->metadata.hex);

        json_object_set(j, "core-metadata", m);
        json_object_set_new(j, "data-dist-info-metadata", m);
    }
    if (f->size)
        json_object_set_new(j, "size", json_integer((json_int_t)f->size));
    if (f->upload_time)
        json_object_set_new(j, "upload-time", json_string(f->upload_time));
    return j;
}

static int pypi_append_json(struct buf *b, const struct files *fs, const bool *shown,
                            json_t *versions)
{
    json_t *list = json_array();
    _cleanup_json_ json_t *doc =
        json_pack("{s:{s:s}, s:s, s:o}", "meta", "api-version", versions ? "1.1" : "1.0", "name",
                  fs->in->name, "files", list);
    _cleanup_free_ char *text = NULL;

    for (size_t i = 0; i < fs->n; i++)
        if (shown[i])
            json_array_append_new(list, pypi_file_json(fs->in, &fs->v[i]));
    if (versions)
        json_object_set(doc, "versions", versions);
    text = json_to_text(doc, false);
    return buf_append_str(b, text);
}

static int pypi_append_escaped(struct buf *b, const char *attr, const char *value)
{
    int r = buf_appendf(b, " %s=\"", attr);

    for (; *value; value++) {
        if (r < 0)
            return r;
        switch (*value) {
        case '<':
            r = buf_append_str(b, "&lt;");
            break;
        case '>':
            r = buf_append_str(b, "&gt;");
            break;
        case '&':
            r = buf_append_str(b, "&amp;");
            break;
        case '"':
            r = buf_append_str(b, "&quot;");
            break;
        default:
            r = buf_append_c(b, *value);
        }
    }
    return r < 0 ? r : buf_append_c(b, '"');
}

static int pypi_append_link(struct buf *b, const struct pypi_input *in, const struct file *f)
{
    char metadata[sizeof("sha256=") + DIGEST_HEX_MAX];
    const struct {
        const char *name, *value; /* NULL: absent */
    } attrs[] = {
        {"data-requires-python", f->requires_python},
        {"data-yanked", f->yanked},
        {"data-core-metadata", f->has_metadata ? metadata : NULL},
        {"data-dist-info-metadata", f->has_metadata ? metadata : NULL},
    };
    int r = buf_appendf(b, "<a href=\"../../files/%s/%s/%s#sha256=%s\"", in->name, f->digest.hex,
                        f->name, f->digest.hex);

    if (r < 0)
        return r;
    snprintf(metadata, sizeof(metadata), "sha256=%s", f->metadata.hex);
    for (size_t i = 0; i < ARRAY_SIZE(attrs); i++) {
        r = attrs[i].value ? pypi_append_escaped(b, attrs[i].name, attrs[i].value) : 0;
        if (r < 0)
            return r;
    }
    return buf_appendf(b, ">%s</a><br/>\n", f->name);
}

static int pypi_append_html(struct buf *b, const struct files *fs, const bool *shown)
{
    int r = buf_appendf(b,
                        "<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" "
                        "content=\"1.0\"/><title>Links for %s</title></head>\n<body>\n"
                        "<h1>Links for %s</h1>\n",
                        fs->in->name, fs->in->name);

    if (r < 0)
        return r;
    for (size_t i = 0; i < fs->n; i++) {
        r = shown[i] ? pypi_append_link(b, fs->in, &fs->v[i]) : 0;
        if (r < 0)
            return r;
    }
    return buf_append_str(b, "</body></html>\n");
}

static int pypi_append_files(struct buf *b, const struct files *fs)
{
    for (size_t i = 0; i < fs->n; i++) {
        const struct file *f = &fs->v[i];
        char version[256];
        struct page_file line = {.name = f->name,
                                 .version = version,
                                 .url = f->url,
                                 .digest = f->digest,
                                 .size = f->size,
                                 .uploaded = f->uploaded,
                                 .metadata = f->metadata,
                                 .has_metadata = f->has_metadata};

        name_pypi_version(f->name, version, sizeof(version));
        if (page_file_add(b, &line) < 0)
            return -ERR_LIMIT;
    }
    return 0;
}

/*
 * Decides which files the page lists. When the policy denies all of them, the page lists all: pip
 * shows the reason why a file was denied, but not why an index page was.
 */
static bool *pypi_choose(const struct files *fs, const struct policy *policy, int64_t now)
{
    bool *shown = xcalloc(fs->n + 1, sizeof(*shown));
    size_t n = 0;

    for (size_t i = 0; i < fs->n; i++) {
        char reason[POLICY_REASON_MAX], version[256];
        struct policy_item item = {.eco = ECO_PYPI,
                                   .name = fs->in->name,
                                   .version = version,
                                   .uploaded = fs->v[i].uploaded};

        name_pypi_version(fs->v[i].name, version, sizeof(version));
        shown[i] = !policy_denies(policy, &item, now, reason);
        n += shown[i];
    }
    if (n == 0)
        memset(shown, true, fs->n);
    return shown;
}

int pypi_make_page(const struct pypi_input *in, const struct policy *policy, int64_t now,
                   struct page_draft *ret, struct err *err)
{
    _cleanup_(pypi_files_done) struct files fs = {.in = in};
    _cleanup_json_ json_t *versions = NULL;
    _cleanup_free_ bool *shown = NULL;
    int r;

    if (in->content_type && strcasestr(in->content_type, "json"))
        r = pypi_parse_json(&fs, &versions, err);
    else
        r = html_links(in->text, in->len, pypi_take_link, &fs, err);
    if (r < 0)
        return r;
    shown = pypi_choose(&fs, policy, now);
    if (pypi_append_json(page_draft_add(ret, "json"), &fs, shown, versions) < 0 ||
        pypi_append_html(page_draft_add(ret, "html"), &fs, shown) < 0 ||
        pypi_append_files(page_draft_add(ret, PAGE_FILES), &fs) < 0)
        return err_set(err, ERR_LIMIT, "the index page of '%s' is too long", in->name);
    return 0;
}
