#include "daemon/main/packages-config.h"

#include <fcntl.h>
#include <unistd.h>

#include "daemon/engine/native/probe.h"
#include "daemon/main/config.h"
#include "daemon/packages/packages-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { UPSTREAMS_FILE_MAX = 1 << 20 };

static void packages_config_on_warning(void *arg, const char *message)
{
    (void)arg;
    log_warn("%s", message);
}

static void packages_config_add_upstream(json_t *list, const struct daemon_config *c,
                                         const char *type, const char *url)
{
    json_t *u;

    if (!*url)
        return;
    u = json_pack("{s:s, s:s, s:s, s:b}", "name", type, "type", type, "url", url, "private",
                  c->packages_private);
    if (*c->packages_ca_file)
        json_object_set_new(u, "ca_file", json_string(c->packages_ca_file));
    json_array_append_new(list, u);
}

/* Adds the upstreams of a file: an array as in packages/config.h. */
static int packages_config_add_file(json_t *list, const char *path, struct err *err)
{
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *more = NULL;
    size_t len = 0;
    int r;

    r = file_read(AT_FDCWD, path, UPSTREAMS_FILE_MAX, &text, &len, err);
    if (r < 0)
        return r;
    r = json_parse(path, text, len, &more, err);
    if (r < 0)
        return r;
    if (!json_is_array(more))
        return err_set(err, ERR_INVALID, "'%s': must be an array of upstreams", path);
    json_array_extend(list, more);
    return 0;
}

static int packages_config_settings(const struct daemon_config *c, const char *state_dir,
                                    char **ret, struct err *err)
{
    _cleanup_free_ char *folder = xasprintf("%s/registry", state_dir);
    _cleanup_json_ json_t *doc = NULL;
    json_t *upstreams = json_array();
    int r;

    packages_config_add_upstream(upstreams, c, "pypi", c->packages_pypi);
    packages_config_add_upstream(upstreams, c, "npm", c->packages_npm);
    doc =
        json_pack("{s:s, s:I, s:I, s:s, s:I, s:o, s:o}", "folder", folder, "budget",
                  (json_int_t)c->packages_budget, "metadata_life",
                  (json_int_t)(c->packages_metadata_life / USEC_PER_SEC), "offline",
                  c->packages_offline, "min_age", (json_int_t)(c->packages_min_age / USEC_PER_SEC),
                  "deny", json_from_strv(c->packages_deny), "upstreams", upstreams);
    if (!doc)
        return err_set(err, ERR_INVALID, "keys 'packages.*': a value is not valid UTF-8");
    if (*c->packages_upstreams) {
        r = packages_config_add_file(upstreams, c->packages_upstreams, err);
        if (r < 0)
            return err_wrap(err, "key 'packages.upstreams'");
    }
    /* Under `unshare -r` the id of the other user is not mapped. */
    if (geteuid() == 0 && probe_id_exists(c->packages_uid))
        json_object_set_new(doc, "uid", json_integer(c->packages_uid));
    *ret = json_to_text(doc, false);
    return 0;
}

int packages_config_open(const struct daemon_config *c, const struct packages_config_place *place,
                         struct packages_proxy **ret, struct err *err)
{
    _cleanup_free_ char *program = xasprintf("%s/ripcord-packages", place->libexec_dir);
    _cleanup_free_ char *text = NULL;
    _cleanup_strv_ char **env = NULL;
    int r = packages_config_settings(c, place->state_dir, &text, err);

    if (r < 0)
        return r;
    if (*c->packages_proxy) {
        strv_env_set(&env, "https_proxy", c->packages_proxy);
        strv_env_set(&env, "http_proxy", c->packages_proxy);
    }
    *ret =
        packages_proxy_new(&(struct packages_proxy_config){.loop = place->loop,
                                                           .program = program,
                                                           .settings = text,
                                                           .env = env,
                                                           .on_warning = packages_config_on_warning,
                                                           .on_event = place->on_event,
                                                           .arg = place->arg});
    return 0;
}
