/*
 * The parts of the package cache that need no upstream: names, digests, policies, pages, the
 * store.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/http/fetch/fetch.h"
#include "lib/os/rmtree.h"
#include "packages/blobs.h"
#include "packages/config.h"
#include "packages/html-links.h"
#include "packages/http-range.h"
#include "packages/npm-page.h"
#include "packages/package-name.h"
#include "packages/page-store.h"
#include "packages/policy.h"
#include "packages/pypi-page.h"
#include "tap.h"

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* -- names -- */

TEST(pypi_names_have_one_form)
{
    char out[NAME_MAX_LEN + 1];

    CHECK(name_pypi("Foo_-.Bar", out));
    CHECK_STR(out, "foo-bar");
    CHECK(name_pypi("a", out));
    CHECK(!name_pypi("", out) && !name_pypi("-a", out) && !name_pypi("a-", out));
    CHECK(!name_pypi("a/b", out) && !name_pypi("..", out) && !name_pypi("a b", out));
    CHECK(!name_pypi("\xc3\xa9", out) && !name_pypi("a%2f", out));
}

TEST(npm_names)
{
    CHECK(name_npm("left-pad") && name_npm("@types/node") && name_npm("JSONStream"));
    CHECK(!name_npm("") && !name_npm(".hidden") && !name_npm("_x") && !name_npm("a/b"));
    CHECK(!name_npm("@a") && !name_npm("@/b") && !name_npm("@a/") && !name_npm("@a/b/c"));
    CHECK(!name_npm("@a/../b") && !name_npm("@a/..") && !name_npm("a\\b") && !name_npm("a%2fb"));
    CHECK_STR(name_npm_bare("@types/node"), "node");
    CHECK_STR(name_npm_bare("node"), "node");
}

TEST(files_and_versions)
{
    char v[64];

    CHECK(name_file("a-1.0+x-py3-none-any.whl") && !name_file("../a") && !name_file(".a"));
    CHECK(!name_file("a/b") && !name_file("-rf") && !name_file(""));
    CHECK(name_version("1.0.0-rc.1+b") && !name_version("-1") && !name_version("1/2"));
    name_pypi_version("demo_pkg-1.2.3-py3-none-any.whl", v, sizeof(v));
    CHECK_STR(v, "1.2.3");
    name_pypi_version("demo-pkg-1.2.tar.gz", v, sizeof(v));
    CHECK_STR(v, "1.2");
    name_pypi_version("odd", v, sizeof(v));
    CHECK_STR(v, "");
}

TEST(patterns)
{
    CHECK(name_matches("corp-*", "corp-lib") && !name_matches("corp-*", "corpse"));
    CHECK(name_matches("@corp/*", "@corp/x") && !name_matches("@corp/*", "@corpx/x"));
    CHECK(name_matches("*a*b", "xxaxxb") && !name_matches("*a*b", "xxaxx"));
    CHECK(name_matches("*", "") && !name_matches("", "a"));
}

static int split(const char *text, size_t *n, char **last)
{
    static char mem[512];
    char *s[NAME_SEGMENTS_MAX];
    int r;

    snprintf(mem, sizeof(mem), "%s", text);
    r = name_split_target(mem, s, n, NULL);
    if (r >= 0)
        *last = s[*n - 1];
    return r;
}

TEST(targets_are_decoded_once)
{
    char *last = NULL;
    size_t n = 0;

    CHECK(split("/npm/@a%2fb?x=/../", &n, &last) >= 0 && n == 2);
    CHECK_STR(last, "@a/b");
    CHECK(split("/pypi/simple/", &n, &last) >= 0 && n == 3 && !*last);
    CHECK(split("/a%252e", &n, &last) >= 0);
    CHECK_STR(last, "a%2e");
    CHECK(split("/a/%2e%2e/b", &n, &last) < 0 && split("/a/../b", &n, &last) < 0);
    CHECK(split("//a", &n, &last) < 0 && split("a", &n, &last) < 0 && split("/%00", &n, &last) < 0);
    CHECK(split("/%", &n, &last) < 0 && split("/%4", &n, &last) < 0 &&
          split("/a\x7f", &n, &last) < 0);
    CHECK(split("/1/2/3/4/5/6/7/8/9", &n, &last) < 0);
}

/* -- digests -- */

TEST(ranges)
{
    static const struct {
        const char *text;
        uint64_t size;
        enum range_kind kind;
        uint64_t first, count;
    } cases[] = {
        {NULL, 100, RANGE_ALL, 0, 0},
        {"bytes=0-0", 100, RANGE_PART, 0, 1},
        {"Bytes=10-19", 100, RANGE_PART, 10, 10},
        {"bytes=10-", 100, RANGE_PART, 10, 90},
        {"bytes=-7", 100, RANGE_PART, 93, 7},
        {"bytes=-700", 100, RANGE_PART, 0, 100},
        {"bytes=90-900", 100, RANGE_PART, 90, 10},
        {"bytes=0-18446744073709551615", 100, RANGE_PART, 0, 100},
        {"bytes=100-", 100, RANGE_NONE, 0, 0},
        {"bytes=-0", 100, RANGE_NONE, 0, 0},
        {"bytes=0-", 0, RANGE_NONE, 0, 0},
        {"bytes=5-4", 100, RANGE_ALL, 0, 0},
        {"bytes=0-1,5-6", 100, RANGE_ALL, 0, 0},
        {"bytes=", 100, RANGE_ALL, 0, 0},
        {"bytes=-", 100, RANGE_ALL, 0, 0},
        {"bytes=1", 100, RANGE_ALL, 0, 0},
        {"bytes= 1-2", 100, RANGE_ALL, 0, 0},
        {"bytes=+1-2", 100, RANGE_ALL, 0, 0},
        {"bytes=18446744073709551616-", 100, RANGE_ALL, 0, 0},
        {"lines=1-2", 100, RANGE_ALL, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t first = 0, count = 0;

        CHECK(range_parse(cases[i].text, cases[i].size, &first, &count) == cases[i].kind);
        CHECK(first == cases[i].first && count == cases[i].count);
    }
}

TEST(integrity_takes_the_strongest)
{
    struct digest d;

    CHECK(digest_from_sri("sha1-L7v3bYTv/CFMvAf5VwCCXWMFWFM= "
                          "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/"
                          "SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
                          &d));
    CHECK(d.algo == DIGEST_SHA512 && strncmp(d.hex, "cf83e1357eefb8bd", 16) == 0);
    CHECK(!digest_from_sri("sha512-short", &d) && !digest_from_sri("", &d));
    CHECK(!digest_from_sri("md5-1B2M2Y8AsgTpgAmY7PhCfg==", &d));
    CHECK(digest_from_hex(DIGEST_SHA256, HEX_A, &d) && !digest_from_hex(DIGEST_SHA512, HEX_A, &d));
}

TEST(hashing)
{
    struct hasher *h = hasher_new(DIGEST_SHA256);
    struct digest d = {0};

    hasher_add(h, "abc", 3);
    hasher_end(h, &d);
    hasher_free(h);
    CHECK_STR(d.hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* -- addresses -- */

static bool public4(const char *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET};

    inet_pton(AF_INET, s, &a.sin_addr);
    return fetch_address_is_public((struct sockaddr *)&a);
}

static bool public6(const char *s)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6};

    inet_pton(AF_INET6, s, &a.sin6_addr);
    return fetch_address_is_public((struct sockaddr *)&a);
}

TEST(private_addresses)
{
    CHECK(public4("151.101.0.223") && public4("172.32.0.1") && public4("100.128.0.1"));
    CHECK(!public4("127.0.0.1") && !public4("10.1.2.3") && !public4("172.16.0.1"));
    CHECK(!public4("192.168.1.1") && !public4("169.254.169.254") && !public4("0.0.0.0"));
    CHECK(!public4("100.64.0.1") && !public4("224.0.0.1") && !public4("255.255.255.255"));
    CHECK(public6("2606:4700::6810:84e5") && !public6("::1") && !public6("::"));
    CHECK(!public6("fe80::1") && !public6("fd00::1") && !public6("ff02::1"));
    CHECK(!public6("::ffff:127.0.0.1") && !public6("64:ff9b::a00:1") && !public6("2002:7f00:1::"));
    CHECK(!public6("::127.0.0.1") && public6("64:ff9b::808:808"));
}

TEST(urls)
{
    _cleanup_free_ char *a = fetch_url_join("https://h/simple/x/", "../../f/x.whl#sha256=1");
    _cleanup_free_ char *b = fetch_url_host("HTTPS://Example.com/x");
    _cleanup_free_ char *c = fetch_url_host("ftp://example.com/x");

    CHECK_STR(a, "https://h/f/x.whl");
    CHECK_STR(b, "example.com:443");
    CHECK(!c);
}

/* -- policies -- */

TEST(deny_and_age)
{
    struct policy p = {.min_age = 86400};
    char reason[POLICY_REASON_MAX], of_unknown[POLICY_REASON_MAX];
    struct policy_item item = {
        .eco = ECO_PYPI, .name = "evil-lib", .version = "1.0", .uploaded = 0};
    bool listed, other, young, unknown;

    CHECK(policy_add_deny(&p, "Evil_Lib", NULL) >= 0);
    CHECK(policy_add_deny(&p, "npm:left==1.0.0", NULL) >= 0);
    CHECK(policy_add_deny(&p, "a b", NULL) < 0 && policy_add_deny(&p, "rpm:x", NULL) < 0);
    policy_seal(&p);
    listed = policy_denies(&p, &item, 1000000, reason);
    item = (struct policy_item){.eco = ECO_NPM, .name = "left", .version = "1.0.1"};
    other = policy_denies(&p, &item, 1000000, reason);
    item.uploaded = 999999;
    young = policy_denies(&p, &item, 1000000, reason);
    item.uploaded = -1;
    unknown = policy_denies(&p, &item, 1000000, of_unknown);
    policy_done(&p);
    CHECK(listed && !other && young && unknown);
    CHECK(strstr(reason, "younger than 1 days"));
    CHECK(strstr(of_unknown, "'left' 1.0.1 has no upload time"));
}

TEST(times)
{
    CHECK(policy_parse_time("1970-01-02T00:00:00Z") == 86400);
    CHECK(policy_parse_time("2024-05-01T10:00:00.123456Z") == 1714557600);
    CHECK(policy_parse_time("yesterday") == -1 && policy_parse_time(NULL) == -1);
    CHECK(policy_parse_time("2024-05-01T10:00:00+05:00") == -1);
}

/* -- HTML -- */

struct links {
    int n;
    char href[4][128], text[4][64], python[64], yanked[64];
};

static int on_link(void *arg, const struct html_link *l, struct err *err _unused_)
{
    struct links *out = arg;

    if (out->n < 4) {
        snprintf(out->href[out->n], 128, "%s", l->href);
        snprintf(out->text[out->n], 64, "%s", l->text);
    }
    if (l->requires_python)
        snprintf(out->python, 64, "%s", l->requires_python);
    if (l->yanked)
        snprintf(out->yanked, 64, "%s", l->yanked);
    out->n++;
    return 0;
}

static struct links scan(const char *s)
{
    struct links out = {0};

    if (html_links(s, strlen(s), on_link, &out, NULL) < 0)
        out.n = -1;
    return out;
}

TEST(html_pages)
{
    struct links l = scan(
        "<!DOCTYPE html><!-- <a href='no'>no</a> --><body>"
        "<A HREF=\"x.whl#sha256=1&amp;y\" data-requires-python='&gt;=3.8&#44;&#x3c;4'> x.whl </a>"
        "<a href=y.whl data-yanked>y<b>.whl</b></a><p/><a name=z>none</a><a href='z'>open");

    CHECK(l.n == 3);
    CHECK_STR(l.href[0], "x.whl#sha256=1&y");
    CHECK_STR(l.text[0], "x.whl");
    CHECK_STR(l.python, ">=3.8,<4");
    CHECK_STR(l.text[1], "y.whl");
    CHECK_STR(l.yanked, "");
    CHECK_STR(l.href[2], "z");
}

TEST(html_oddities)
{
    _cleanup_free_ char *longish = calloc(1, HTML_VALUE_MAX + 100);

    CHECK(scan("").n == 0 && scan("<").n == 0 && scan("<a").n == 0 && scan("<a href").n == 1);
    CHECK(scan("<a href='x").n == 1 && scan("</a></a>").n == 0 && scan("<!-- ").n == 0);
    memset(longish, 'x', HTML_VALUE_MAX + 90);
    memcpy(longish, "<a href='", 9);
    CHECK(scan(longish).n == -1);
}

/* -- pages -- */

static int make_pypi(const char *type, const char *text, const struct policy *p,
                     struct page_draft *d)
{
    return pypi_make_page(&(struct pypi_input){.name = "demo",
                                               .url = "https://up/simple/demo/",
                                               .content_type = type,
                                               .text = text,
                                               .len = strlen(text)},
                          p, 2000000000, d, NULL);
}

TEST(pypi_pages)
{
    struct page_draft d = {0}, h = {0};
    struct policy p = {0};
    struct page_file f;
    const char *text =
        "{\"files\":[{\"filename\":\"demo-1.0.tar.gz\",\"url\":\"../../f/"
        "demo-1.0.tar.gz\",\"hashes\":"
        "{\"sha256\":\"" HEX_A "\"},\"yanked\":false,\"size\":7,\"requires-python\":\">=3\"},"
        "{\"filename\":\"no-1.0.tar.gz\",\"url\":\"x\",\"hashes\":{\"md5\":\"1\"}}]}";
    const char *html =
        "<a href='/f/demo-1.0.tar.gz#sha256=" HEX_A "'>demo-1.0.tar.gz</a><a href='x'>x.whl</a>";

    CHECK(make_pypi(PYPI_JSON, text, &p, &d) >= 0);
    CHECK(strstr(buf_data(&d.sections[0].body),
                 "\"url\":\"../../files/demo/" HEX_A "/demo-1.0.tar.gz\""));
    CHECK(!strstr(buf_data(&d.sections[0].body), "no-1.0"));
    CHECK(strstr(buf_data(&d.sections[1].body), "data-requires-python=\"&gt;=3\""));
    CHECK(page_file_find(&d.sections[2].body, "demo-1.0.tar.gz", &f));
    CHECK_STR(f.url, "https://up/f/demo-1.0.tar.gz");
    CHECK_STR(f.version, "1.0");
    CHECK(f.size == 7 && f.uploaded == -1 && !f.has_metadata);
    CHECK(make_pypi("text/html", html, &p, &h) >= 0);
    CHECK(page_file_find(&h.sections[2].body, "demo-1.0.tar.gz", &f));
    CHECK_STR(f.url, "https://up/f/demo-1.0.tar.gz");
    page_draft_done(&d);
    page_draft_done(&h);
    CHECK(make_pypi(PYPI_JSON, "{}", &p, &d) < 0);
    page_draft_done(&d);
}

static const char packument[] = "{\"name\":\"t\",\"readme\":\"\\u0000\",\"dist-tags\":{\"latest\":"
                                "\"2.0.0\",\"next\":\"2.0.0\"},\"time\":{\"1.9.0\":"
                                "\"2020-01-01T00:00:00.000Z\",\"1.10.0\":\"2020-01-01T00:00:00."
                                "000Z\",\"2.0.0\":\"2033-05-18T00:00:00.000Z\"},"
                                "\"versions\":{\"1.9.0\":{\"scripts\":{},\"dist\":{\"tarball\":"
                                "\"https://up/t/-/t-1.9.0.tgz\",\"shasum\":"
                                "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"}},\"1.10.0\":{"
                                "\"dist\":{\"tarball\":\"https://up/a.tgz\",\"shasum\":"
                                "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"}},\"2.0.0\":{"
                                "\"dist\":{\"tarball\":\"https://up/b.tgz\",\"shasum\":"
                                "\"da39a3ee5e6b4b0d3255bfef95601890afd80709\"}},\"3.0.0\":{"
                                "\"dist\":{\"tarball\":\"https://up/c.tgz\"}}}}";

TEST(npm_documents)
{
    struct policy p = {.min_age = 86400};
    struct npm_input in = {.name = "@s/t",
                           .url = "https://up/t",
                           .abbreviate = true,
                           .text = packument,
                           .len = strlen(packument)};
    struct page_draft d = {0};
    _cleanup_buf_ struct buf out = BUF_INIT(100000);
    _cleanup_json_ json_t *j = NULL;
    struct page_file f;

    CHECK(npm_make_page(&in, &p, 2000000000, &d, NULL) >= 0);
    CHECK(npm_set_host(&d.sections[0].body, "h:1", &out, NULL) >= 0);
    CHECK(json_parse("x", buf_data(&out), out.len, &j, NULL) >= 0);
    CHECK(json_object_size(json_object_get(j, "versions")) == 2);
    CHECK_STR(json_string_value(json_object_get(json_object_get(j, "dist-tags"), "latest")),
              "1.10.0");
    CHECK(!json_object_get(json_object_get(j, "dist-tags"), "next"));
    CHECK(strstr(buf_data(&out), "http://h:1/npm/@s/t/-/t-1.9.0.tgz") &&
          !strstr(buf_data(&out), "scripts"));
    CHECK(page_file_find(&d.sections[1].body, "t-1.10.0.tgz", &f));
    CHECK_STR(f.url, "https://up/a.tgz");
    CHECK(f.digest.algo == DIGEST_SHA1);
    CHECK(!page_file_find(&d.sections[1].body, "t-2.0.0.tgz", &f));
    page_draft_done(&d);
}

TEST(npm_versions_compare)
{
    CHECK(npm_version_cmp("1.10.0", "1.9.9") > 0 && npm_version_cmp("2.0.0-rc.1", "1.0.0") < 0);
    CHECK(npm_version_cmp("1.0.0", "1.0.0") == 0);
}

static int temp_folder(char path[static 64])
{
    snprintf(path, 64, "/tmp/test-packages-XXXXXX");
    return mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

static void remove_folder(const char *path)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (rmtree(AT_FDCWD, path, &err) < 0)
        printf("# '%s' is left: %s\n", path, err.msg);
}

TEST(pages_are_kept_whole_or_not_at_all)
{
    char path[64], file[80];
    _cleanup_close_ int dir = temp_folder(path);
    struct page_draft d = {.etag = "\"x y\"", .policy = "p1"};
    _cleanup_buf_ struct buf got = BUF_INIT(100);
    struct page page = {.fd = -1};
    int there, torn;

    CHECK(dir >= 0 && mkdirat(dir, "tmp", 0700) == 0);
    CHECK(buf_append_str(page_draft_add(&d, "json"), "body") >= 0);
    CHECK(buf_append_str(page_draft_add(&d, "html"), "other") >= 0);
    CHECK(page_write(dir, "p", &d, NULL) >= 0);
    page_draft_done(&d);
    there = page_open(dir, "p", &page);
    CHECK(there == 1);
    CHECK_STR(page.etag, "\"x y\"");
    CHECK(page_read(&page, "html", &got, NULL) >= 0);
    CHECK_STR(buf_data(&got), "other");
    CHECK(page_read(&page, "none", &got, NULL) == -ERR_NOT_FOUND);
    page_done(&page);
    snprintf(file, sizeof(file), "%s/p", path);
    CHECK(truncate(file, 40) == 0);
    torn = page_open(dir, "p", &page);
    remove_folder(path);
    CHECK(torn == 0);
}

static int put(int dir, struct blobs *b, const char *text, struct digest *d)
{
    struct hasher *h = hasher_new(DIGEST_SHA256);
    char tmp[32];
    int fd = -1, r;

    hasher_add(h, text, strlen(text));
    hasher_end(h, d);
    hasher_free(h);
    r = blob_tmp(dir, tmp, &fd, NULL);
    if (r >= 0)
        r = fd_write_all(fd, text, strlen(text));
    if (r >= 0)
        r = blob_commit(dir, fd, tmp, d, "pypi/x/x.whl", NULL);
    if (r >= 0)
        blobs_add(b, d, strlen(text));
    fd_close(fd);
    return r;
}

TEST(the_store_survives_and_evicts)
{
    char path[64], where[BLOB_PATH_MAX];
    _cleanup_close_ int dir = temp_folder(path), held = -1, gone = -1;
    struct blobs b, again;
    struct digest d[3];
    uint64_t size = 0, n = 0, bytes = 0;
    char text[8] = "";

    CHECK(dir >= 0 && blobs_open(&b, dir, 12, NULL) >= 0);
    CHECK(put(dir, &b, "first", &d[0]) >= 0 && put(dir, &b, "again", &d[1]) >= 0);
    usleep(2000);
    held = blobs_use(&b, &d[0], &size);
    CHECK(held >= 0 && size == 5 && b.bytes == 10);
    CHECK(put(dir, &b, "third", &d[2]) >= 0);
    CHECK(b.bytes == 10 && b.evicted == 1);
    gone = blobs_use(&b, &d[1], &size);
    CHECK(gone < 0 && blobs_get(&b, &d[0]) && blobs_get(&b, &d[2]));
    blobs_done(&b);
    CHECK(close(openat(dir, "tmp/left", O_CREAT | O_WRONLY, 0600)) == 0);
    CHECK(blobs_open(&again, dir, 12, NULL) >= 0);
    CHECK(again.n == 2 && again.bytes == 10 && faccessat(dir, "tmp/left", F_OK, 0) < 0);
    blobs_evict(&again, 0, 0, &n, &bytes);
    blob_path(&d[0], where);
    CHECK(n == 2 && bytes == 10 && faccessat(dir, where, F_OK, 0) < 0);
    CHECK(pread(held, text, 5, 0) == 5);
    CHECK_STR(text, "first");
    blobs_done(&again);
    remove_folder(path);
}

TEST(a_truncated_file_is_not_used)
{
    char path[64], where[BLOB_PATH_MAX];
    _cleanup_close_ int dir = temp_folder(path), fd = -1, file = -1;
    struct blobs b;
    struct digest d;
    uint64_t size;

    CHECK(dir >= 0 && blobs_open(&b, dir, 100, NULL) >= 0 && put(dir, &b, "whole", &d) >= 0);
    blob_path(&d, where);
    CHECK(fchmodat(dir, where, 0600, 0) == 0);
    file = openat(dir, where, O_WRONLY | O_CLOEXEC);
    CHECK(file >= 0 && ftruncate(file, 2) == 0);
    fd = blobs_use(&b, &d, &size);
    CHECK(fd < 0 && b.n == 0 && b.bytes == 0 && faccessat(dir, where, F_OK, 0) < 0);
    blobs_done(&b);
    remove_folder(path);
}

/* -- configuration -- */

static int parse(const char *text, struct packages_config *c)
{
    return config_parse(text, strlen(text), c, NULL);
}

TEST(configurations)
{
    struct packages_config c;

    CHECK(parse("{\"folder\":\"/x\"}", &c) >= 0);
    CHECK(c.n_upstreams == 2 && c.metadata_life == 300 && !c.change_user);
    CHECK(strncmp(config_route(&c, ECO_NPM, "x")->url, "https://", 8) == 0);
    config_done(&c);
    CHECK(parse("{}", &c) < 0 && parse("{\"folder\":\"x\"}", &c) < 0);
    CHECK(parse("{\"folder\":\"/"
                "x\",\"upstreams\":[{\"name\":\"a\",\"type\":\"npm\",\"url\":\"http://x/\"}]}",
                &c) < 0);
    CHECK(parse("{\"folder\":\"/"
                "x\",\"upstreams\":[{\"name\":\"a\",\"type\":\"npm\",\"url\":\"https://x\","
                "\"names\":[\"@c/*\"],\"user\":\"u\",\"password\":\"p\"}]}",
                &c) >= 0);
    CHECK_STR(c.upstreams[0].url, "https://x/");
    CHECK_STR(c.upstreams[0].authorization, "Basic dTpw");
    CHECK(config_route(&c, ECO_NPM, "@c/x") == &c.upstreams[0]);
    CHECK(!config_route(&c, ECO_NPM, "x") && !config_route(&c, ECO_PYPI, "x"));
    config_done(&c);
}
