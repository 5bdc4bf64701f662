#include "daemon/engine/native/transfer.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-images.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/probe.h"
#include "daemon/engine/native/program.h"
#include "image/oci/reference.h"
#include "image/store/images.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/transfer.h"

enum { HAVE_MAX = 20000 };

/* ---- settings ---- */

void native_transfer_init(struct native_engine *n, const struct engine_transfer_config *config)
{
    n->transfer.uid = config->uid;
    n->transfer.mirrors = strv_copy(config->mirrors);
    n->transfer.ca_file = xstrdup(config->ca_file ? config->ca_file : "");
    n->transfer.proxy = xstrdup(config->proxy ? config->proxy : "");
    n->transfer.add_hosts = strv_copy(config->add_hosts);
    n->transfer.add_max = config->add_max;
}

void native_transfer_done(struct native_engine *n)
{
    strv_free(n->transfer.mirrors);
    free(n->transfer.ca_file);
    free(n->transfer.proxy);
    strv_free(n->transfer.add_hosts);
}

/* The length of the host in "host", "host:port", "[::1]:port". */
static size_t transfer_host_len(const char *host)
{
    const char *end = strchr(host, ']');

    return end ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

/* A host without a port stands for ports 80 and 443. */
static json_t *transfer_hosts_with_ports(char *const *hosts)
{
    json_t *a = json_array();

    for (; hosts && *hosts; hosts++) {
        if ((*hosts)[transfer_host_len(*hosts)]) {
            json_array_append_new(a, json_string(*hosts));
            continue;
        }
        json_array_append_new(a, json_sprintf("%s:80", *hosts));
        json_array_append_new(a, json_sprintf("%s:443", *hosts));
    }
    return a;
}

/* Digests of the layers in the store. Layers over the limit are only downloaded again. */
static json_t *transfer_layers_here(const struct native_engine *n)
{
    _cleanup_free_ char *path = xasprintf("%s/images/store/layers", n->state_dir);
    _cleanup_closedir_ DIR *d = opendir(path);
    json_t *a = json_array();

    for (const struct dirent *e; d && json_array_size(a) < HAVE_MAX && (e = readdir(d));) {
        char digest[DIGEST_MAX];

        snprintf(digest, sizeof(digest), "sha256:%.64s", e->d_name);
        if (digest_is_valid(digest))
            json_array_append_new(a, json_string(digest));
    }
    return a;
}

/* Splits "NAME[:TAG]@sha256:…"; *ret_name is the name in the store. */
static int transfer_split_name(json_t *doc, const char *wanted, char **ret_name, struct err *err)
{
    const char *text = json_string_value(json_object_get(doc, "name"));
    const char *at = text ? strchr(text, '@') : NULL;
    _cleanup_free_ char *name = NULL, *ref = NULL;
    int r;

    if (!text)
        return err_set(err, ERR_INVALID, "the image's name is missing");
    name = at ? xstrndup(text, (size_t)(at - text)) : xstrdup(text);
    r = reference_parse(name, &ref, err);
    if (r < 0)
        return r;
    if (at && !digest_is_valid(at + 1))
        return err_set(err, ERR_INVALID, "'%.100s' is not a digest 'sha256:…'", at + 1);
    if (at && !wanted && !strchr(strrchr(name, '/') ?: name, ':')) {
        err_set(err, ERR_INVALID, "a digest alone does not name an image in the store");
        return err_hint(err, "Write NAME:TAG@sha256:…, or add a name for the store.");
    }
    if (at)
        json_object_set_new(doc, "digest", json_string(at + 1));
    json_object_set_new(doc, "name", json_string(ref));
    if (!wanted) {
        *ret_name = TAKE_PTR(ref);
        return 0;
    }
    return reference_parse(wanted, ret_name, err);
}

static int transfer_make_settings(const struct native_engine *n, json_t *doc, int *ret,
                                  struct err *err)
{
    _cleanup_free_ char *text = NULL;
    int r;

    if (geteuid() == 0 && probe_id_exists(n->transfer.uid))
        json_object_set_new(doc, "uid", json_integer(n->transfer.uid));
    json_object_set_new(doc, "mirrors", json_from_strv(n->transfer.mirrors));
    json_object_set_new(doc, "ca_file", json_string(n->transfer.ca_file));
    text = json_to_text(doc, false);
    if (strlen(text) > TRANSFER_SETTINGS_MAX)
        return err_set(err, ERR_LIMIT, "the request is too long");
    r = memfd_sealed("transfer-settings", text, strlen(text), ret, err);
    explicit_bzero(text, strlen(text));
    return r;
}

/* A registry without TLS is on the local network and needs no proxy. A file server may be
 * anywhere, except the hosts of the configuration. */
static char **transfer_proxies(const struct native_engine *n, bool files)
{
    _cleanup_strv_ char **near = NULL;
    char **env = NULL;

    if (!*n->transfer.proxy)
        return NULL;
    strv_push(&env, xasprintf("https_proxy=%s", n->transfer.proxy));
    if (!files)
        return env;
    strv_push(&env, xasprintf("http_proxy=%s", n->transfer.proxy));
    for (char **h = n->transfer.add_hosts; h && *h; h++)
        strv_push(&near, xstrndup(*h, transfer_host_len(*h)));
    if (near) {
        _cleanup_free_ char *list = strv_join(near, ",");

        strv_push(&env, xasprintf("no_proxy=%s", list));
    }
    return env;
}

/* fds: for TRANSFER_FD_ARCHIVE and the numbers after it; negative ones are left out. */
static int transfer_start(const struct native_engine *n, const char *verb,
                          const int fds[static TRANSFER_FDS], struct program *ret, struct err *err)
{
    const char *const argv[] = {"ripcord-transfer", verb, NULL};
    _cleanup_strv_ char **env = transfer_proxies(n, STREQ(verb, "fetch"));
    struct process_fd table[TRANSFER_FDS + 1] = {{n->devnull, STDIN_FILENO}};

    for (int i = 0; i < TRANSFER_FDS; i++)
        table[i + 1] = (struct process_fd){fds[i], TRANSFER_FD_ARCHIVE + i};
    return program_start(n->libexec_dir, argv, (const char *const *)env, table, TRANSFER_FDS + 1,
                         ret, err);
}

/* ---- pull ---- */

/* ripcord-transfer is asked first: when it fails, ripcord-image has only read half an archive. */
static int transfer_run_pull(const struct native_engine *n, const struct image_tool *tool,
                             int archive, const int fds[static TRANSFER_FDS],
                             const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_program_ struct program image = PROGRAM_INIT, transfer = PROGRAM_INIT;
    _cleanup_free_ char *nothing = NULL;
    int r = image_tool_start(n, tool, &image, err);

    if (r >= 0)
        r = transfer_start(n, "pull", fds, &transfer, err);
    /* Only the two programs keep the pipe open now: each sees when the other ends. */
    fd_close(tool->in);
    fd_close(archive);
    if (r < 0)
        return r;
    r = program_answer(&transfer, by, &nothing, err);
    return r < 0 ? r : program_answer(&image, by, ret, err);
}

static int transfer_pull(struct native_engine *n, const struct image_pull *req, json_t *doc,
                         const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_close_ int settings = -1, folder = -1;
    _cleanup_free_ char *name = NULL, *downloads = NULL;
    struct image_tool tool = {.verb = "import", .data = -1};
    int p[2], r = transfer_split_name(doc, req->name, &name, err);

    json_object_set_new(doc, "have", transfer_layers_here(n));
    if (r < 0)
        return r;
    r = transfer_make_settings(n, doc, &settings, err);
    if (r < 0)
        return r;
    downloads = xasprintf("%s/images/downloads", n->state_dir);
    r = dir_make_all(AT_FDCWD, downloads, 0700, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, downloads, &folder, err);
    if (r < 0)
        return r;
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    tool.arg = name;
    tool.more = json_string_value(json_object_get(doc, "platform"));
    tool.in = p[0];
    return transfer_run_pull(n, &tool, p[1], (const int[]){p[1], settings, req->progress, folder},
                             by, ret, err);
}

/* ---- push ---- */

/* ripcord-image packs and is asked first: when it fails, ripcord-transfer has only read half an
 * archive. */
static int transfer_run_push(const struct native_engine *n, const struct image_tool *tool,
                             int archive, const int fds[static TRANSFER_FDS],
                             const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_program_ struct program image = PROGRAM_INIT, transfer = PROGRAM_INIT;
    _cleanup_free_ char *packed = NULL;
    int r = image_tool_start(n, tool, &image, err);

    if (r >= 0)
        r = transfer_start(n, "push", fds, &transfer, err);
    fd_close(tool->data);
    fd_close(archive);
    if (r < 0)
        return r;
    r = program_answer(&image, by, &packed, err);
    return r < 0 ? r : program_answer(&transfer, by, ret, err);
}

static int transfer_push(struct native_engine *n, const struct image_push *req, json_t *doc,
                         const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_close_ int settings = -1, null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *name = NULL;
    struct image_tool tool = {.verb = "export", .arg = req->name, .more = "push", .in = null};
    int p[2], r = null < 0 ? err_sys(err, errno, "open '/dev/null'") : 0;

    if (r < 0)
        return r;
    r = transfer_split_name(doc, NULL, &name, err);
    if (r < 0)
        return r;
    if (json_object_get(doc, "digest"))
        return err_set(err, ERR_INVALID, "an image cannot be pushed to a digest: give a name");
    r = transfer_make_settings(n, doc, &settings, err);
    if (r < 0)
        return r;
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    tool.data = p[1];
    return transfer_run_push(n, &tool, p[0], (const int[]){p[0], settings, req->progress, -1}, by,
                             ret, err);
}

/* ---- files for builds ---- */

int native_fetch(struct native_engine *n, const struct transfer_file *f, const struct deadline *by,
                 char **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = json_pack("{s:s, s:o, s:I}", "name", f->url, "hosts",
                                           transfer_hosts_with_ports(n->transfer.add_hosts),
                                           "size_max", (json_int_t)n->transfer.add_max);
    _cleanup_program_ struct program transfer = PROGRAM_INIT;
    _cleanup_close_ int settings = -1;
    int r;

    if (f->etag)
        json_object_set_new(doc, "etag", json_string(f->etag));
    r = transfer_make_settings(n, doc, &settings, err);
    if (r < 0)
        return r;
    r = transfer_start(n, "fetch", (const int[]){f->to, settings, f->events, -1}, &transfer, err);
    return r < 0 ? r : program_answer(&transfer, by, ret, err);
}

/* ---- images ---- */

int native_pull(struct native_engine *n, const struct image_pull *req, const struct deadline *by,
                char **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the request", req->settings, strlen(req->settings), &doc, err);

    if (r < 0)
        return r;
    r = image_transfer_begin(n, err);
    if (r < 0)
        return r;
    r = transfer_pull(n, req, doc, by, ret, err);
    image_transfer_end(n);
    return r;
}

int native_push(struct native_engine *n, const struct image_push *req, const struct deadline *by,
                char **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the request", req->settings, strlen(req->settings), &doc, err);

    if (r < 0)
        return r;
    r = image_transfer_begin(n, err);
    if (r < 0)
        return r;
    r = transfer_push(n, req, doc, by, ret, err);
    image_transfer_end(n);
    return r;
}
