#include "cli/docker-auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/base64.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/image-name.h"
#include "lib/base/json.h"
#include "lib/base/xalloc.h"

enum { CONFIG_MAX = 1 << 20, AUTH_MAX = 16 << 10 };

struct auth_file {
    char *path, *text; /* owned; text is NULL without a file */
    size_t len;
};

/* Wipes the text, which holds passwords. */
static void docker_auth_file_done(struct auth_file *c)
{
    if (c->text)
        explicit_bzero(c->text, c->len);
    free(c->text);
    free(c->path);
}
#define _cleanup_auth_file_ __attribute__((cleanup(docker_auth_file_done)))

static int docker_auth_file_read(struct auth_file *ret, struct err *err)
{
    const char *dir = getenv("DOCKER_CONFIG"), *home = getenv("HOME");

    if (dir && *dir)
        ret->path = xasprintf("%s/config.json", dir);
    else if (home && *home)
        ret->path = xasprintf("%s/.docker/config.json", home);
    if (!ret->path || access(ret->path, F_OK) < 0)
        return 0;
    return file_read(AT_FDCWD, ret->path, CONFIG_MAX, &ret->text, &ret->len, err);
}

static bool docker_auth_is_host(const char *host, size_t len, const char *name)
{
    return strlen(name) == len && strncmp(host, name, len) == 0;
}

/* Keys have the form "host" or "https://host/v1/". Docker Hub has an old name, too. */
static bool docker_auth_key_is_for(const char *key, const char *registry)
{
    const char *host = strstr(key, "://") ? strstr(key, "://") + 3 : key;
    size_t len = strcspn(host, "/");

    return docker_auth_is_host(host, len, registry) ||
           (STREQ(registry, "docker.io") && docker_auth_is_host(host, len, "index.docker.io"));
}

/* The parser's own error would quote a part of the file, which holds passwords. */
static int docker_auth_parse_file(const char *text, size_t len, json_t **ret, struct err *err)
{
    return json_parse("it", text, len, ret, NULL) < 0 ? err_set(err, ERR_INVALID, "not valid JSON")
                                                      : 0;
}

static int docker_auth_decode(const char *text, struct docker_auth *ret, struct err *err)
{
    _cleanup_wipe_ struct buf b = BUF_INIT(AUTH_MAX);
    const char *colon;

    if (base64_decode(&b, text, strlen(text), err) < 0)
        return err_wrap(err, "'auth'");
    colon = memchr(buf_data(&b), ':', b.len);
    if (!colon || memchr(buf_data(&b), '\0', b.len))
        return err_set(err, ERR_INVALID, "'auth' must have the form USER:PASSWORD in base64");
    ret->username = xstrndup(buf_data(&b), (size_t)(colon - buf_data(&b)));
    ret->password = xstrndup(colon + 1, b.len - (size_t)(colon + 1 - buf_data(&b)));
    return 0;
}

int docker_auth_parse(const char *text, size_t len, const char *registry, struct docker_auth *ret,
                      struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *key, *auth;
    json_t *entry;
    int r = docker_auth_parse_file(text, len, &doc, err);

    if (r < 0)
        return r;
    json_object_foreach (json_object_get(doc, "auths"), key, entry) {
        auth = json_string_value(json_object_get(entry, "auth"));
        if (auth && *auth && docker_auth_key_is_for(key, registry))
            return docker_auth_decode(auth, ret, err);
    }
    return 0;
}

/* The registry of a key, as image names spell it. The caller frees it. */
static char *docker_auth_registry_of_key(const char *key)
{
    const char *host = strstr(key, "://") ? strstr(key, "://") + 3 : key;
    _cleanup_free_ char *name = xstrndup(host, strcspn(host, "/"));

    return xstrdup(docker_auth_key_is_for(key, "docker.io") ? "docker.io" : name);
}

static bool docker_auth_is_wanted(const char *registry, const char *const *texts, size_t n)
{
    if (STREQ(registry, "docker.io"))
        return true;
    for (size_t i = 0; i < n; i++)
        if (*registry && strstr(texts[i], registry))
            return true;
    return false;
}

static int docker_auth_collect_one(const char *registry, const char *auth, json_t *all,
                                   struct err *err)
{
    _cleanup_docker_auth_ struct docker_auth a = {0};
    json_t *login;
    int r = docker_auth_decode(auth, &a, err);

    if (r < 0)
        return err_wrap(err, "'%.100s'", registry);
    login = json_pack("{s:s, s:s}", "username", a.username, "password", a.password);
    if (!login)
        return err_set(err, ERR_INVALID, "'%.100s': 'auth' is not valid UTF-8", registry);
    json_object_set_new(all, registry, login);
    return 0;
}

int docker_auth_parse_all(const char *text, size_t len, const char *const *texts, size_t n,
                          json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *all = json_object();
    const char *key;
    json_t *entry;
    int r = docker_auth_parse_file(text, len, &doc, err);

    if (r < 0)
        return r;
    json_object_foreach (json_object_get(doc, "auths"), key, entry) {
        const char *auth = json_string_value(json_object_get(entry, "auth"));
        _cleanup_free_ char *registry = docker_auth_registry_of_key(key);

        if (!auth || !*auth || !docker_auth_is_wanted(registry, texts, n) ||
            json_object_get(all, registry))
            continue;
        r = docker_auth_collect_one(registry, auth, all, err);
        if (r < 0)
            return r;
    }
    *ret = json_object_size(all) ? json_incref(all) : NULL;
    return 0;
}

int docker_auth_collect(const char *const *texts, size_t n, json_t **ret, struct err *err)
{
    _cleanup_auth_file_ struct auth_file c = {0};

    if (docker_auth_file_read(&c, err) < 0)
        return err_wrap(err, "'%s'", c.path);
    if (c.text && docker_auth_parse_all(c.text, c.len, texts, n, ret, err) < 0)
        return err_wrap(err, "'%s'", c.path);
    return 0;
}

int docker_auth_find(const char *name, struct docker_auth *ret, struct err *err)
{
    _cleanup_free_ char *registry = image_name_registry(name);
    _cleanup_auth_file_ struct auth_file c = {0};

    if (docker_auth_file_read(&c, err) >= 0 &&
        (!c.text || docker_auth_parse(c.text, c.len, registry, ret, err) >= 0))
        return 0;
    err_wrap(err, "credentials in '%s'", c.path);
    return err_hint(err, "Fix the file, or use --username and --password-stdin.");
}

void docker_auth_done(struct docker_auth *a)
{
    if (a->password)
        explicit_bzero(a->password, strlen(a->password));
    free(a->username);
    free(a->password);
    *a = (struct docker_auth){0};
}
