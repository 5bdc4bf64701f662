/*
 * A pull is one request of the Engine API. Its answer is a line for each change of a layer, with a
 * number of bytes only while that layer moves: the sums for people are counted here.
 */
#include "daemon/engine/docker/images.h"

#include <string.h>

#include "daemon/engine/docker/backend.h"
#include "dockerapi/docker.h"
#include "lib/base/base64.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PULL_LAYERS_MAX = 512 };

static int images_unsupported(const struct engine *e, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED, "engine '%s' manages its images itself", e->ops->name);
    return err_hint(err, "Use its own commands, such as `docker image ls`.");
}

/* ---- show ---- */

static json_t *images_list_of(const json_t *o, const char *key)
{
    json_t *list = json_object_get(o, key);

    return json_is_array(list) ? json_incref(list) : json_array();
}

/* NULL instead of "". */
static const char *images_text_of(const json_t *o, const char *key)
{
    const char *s = docker_text(o, key);

    return *s ? s : NULL;
}

static json_t *images_convert(const json_t *doc)
{
    const json_t *config = json_object_get(doc, "Config");
    const char *id = docker_text(doc, "Id");

    return json_pack("{s:s+, s:o, s:o, s:O*, s:n, s:s?, s:s?, s:s?, s:s?, s:o, s:o, s:o}", "id",
                     strchr(id, ':') ? "" : "sha256:", id, "names", images_list_of(doc, "RepoTags"),
                     "layers", images_list_of(json_object_get(doc, "RootFS"), "Layers"), "bytes",
                     json_object_get(doc, "Size"), "own_bytes", "architecture",
                     images_text_of(doc, "Architecture"), "created", images_text_of(doc, "Created"),
                     "user", images_text_of(config, "User"), "workdir",
                     images_text_of(config, "WorkingDir"), "env", images_list_of(config, "Env"),
                     "entrypoint", images_list_of(config, "Entrypoint"), "cmd",
                     images_list_of(config, "Cmd"));
}

static int images_show(struct docker_engine *d, const char *name, const struct deadline *by,
                       json_t **ret, struct err *err)
{
    bool ours = STREQ(name, d->engine.ops->default_image);
    _cleanup_free_ char *path = docker_path("/images/%s/json", ours ? d->image : name);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r = docker_ask(d, "GET", path, NULL, by, &reply, err);

    if (r < 0)
        return err_wrap(err, "image '%s'", name);
    *ret = images_convert(reply.json);
    return *ret ? 0
                : err_set(err, ERR_ENGINE, "image '%s': the engine's answer is incomplete", name);
}

/* ---- pull ---- */

struct images_pull_layer {
    char id[32];
    uint64_t bytes, total;
    bool done;
};

struct images_pull {
    struct images_pull_layer layers[PULL_LAYERS_MAX];
    size_t n;
    int progress;  /* borrowed */
    bool unread;   /* nobody reads the progress: the client is gone */
    char *failure; /* owned */
};

static struct images_pull_layer *images_pull_find(struct images_pull *p, const char *id)
{
    for (size_t i = 0; i < p->n; i++)
        if (STREQ(p->layers[i].id, id))
            return &p->layers[i];
    if (p->n == PULL_LAYERS_MAX || strlen(id) >= sizeof(p->layers->id))
        return NULL;
    memcpy(p->layers[p->n].id, id, strlen(id) + 1);
    return &p->layers[p->n++];
}

static void images_pull_report(struct images_pull *p)
{
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL, *line = NULL;
    uint64_t bytes = 0, total = 0;
    size_t done = 0;

    for (size_t i = 0; i < p->n; i++) {
        bytes += p->layers[i].bytes;
        total += p->layers[i].total;
        done += p->layers[i].done;
    }
    doc = json_pack("{s:{s:s, s:I, s:I, s:I, s:I}}", "progress", "step", "download", "layers_done",
                    (json_int_t)done, "layers", (json_int_t)p->n, "bytes", (json_int_t)bytes,
                    "total", (json_int_t)total);
    text = json_to_text(doc, false);
    line = xasprintf("%s\n", text);
    p->unread |= fd_write_all(p->progress, line, strlen(line)) < 0;
}

static uint64_t images_pull_number(const json_t *detail, const char *key)
{
    json_int_t v = json_integer_value(json_object_get(detail, key));

    return v > 0 ? (uint64_t)v : 0;
}

static void images_pull_take_line(struct images_pull *p, const json_t *line)
{
    const char *status = docker_text(line, "status"), *id = docker_text(line, "id");
    const char *failure = docker_text(line, "error");
    const json_t *detail = json_object_get(line, "progressDetail");
    struct images_pull_layer *layer;

    if (*failure && !p->failure)
        p->failure = xstrdup(failure);
    if (!*id || strncmp(status, "Pulling from", strlen("Pulling from")) == 0)
        return;
    layer = images_pull_find(p, id);
    if (!layer)
        return;
    if (STREQ(status, "Downloading")) {
        layer->bytes = images_pull_number(detail, "current");
        layer->total = MAX(layer->total, images_pull_number(detail, "total"));
    } else if (STREQ(status, "Pull complete") || STREQ(status, "Already exists")) {
        layer->done = true;
        layer->bytes = layer->total;
    }
    images_pull_report(p);
}

static int images_pull_failed(const char *name, const char *failure, struct err *err)
{
    static const char *const absent[] = {"not found", "manifest unknown", "does not exist",
                                         "name unknown", "repository name not known"};
    enum err_code code = ERR_ENGINE;

    for (size_t i = 0; i < ARRAY_SIZE(absent); i++)
        if (strstr(failure, absent[i]))
            code = ERR_NOT_FOUND;
    return err_set(err, code, "pull '%s': %s", name, failure);
}

/* The X-Registry-Auth field, or NULL without credentials. */
static char *images_pull_auth(const json_t *settings)
{
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL, *encoded = NULL;

    if (!*docker_text(settings, "username"))
        return NULL;
    doc = json_pack("{s:s, s:s}", "username", docker_text(settings, "username"), "password",
                    docker_text(settings, "password"));
    text = json_to_text(doc, false);
    encoded = base64_encode(text, strlen(text));
    explicit_bzero(text, strlen(text));
    for (char *c = encoded; *c; c++) /* the alphabet for URLs */
        *c = (char)(*c == '+' ? '-' : *c == '/' ? '_' : *c);
    return xasprintf("X-Registry-Auth: %s\r\n", encoded);
}

/* NAME[:TAG][@DIGEST]. Without a tag Docker would pull all of them. */
static char *images_pull_path(const char *name, const char *platform)
{
    const char *at = strchr(name, '@'), *slash = strrchr(name, '/');
    const char *colon = strchr(slash ? slash : name, ':');
    size_t len = strcspn(name, "@");
    _cleanup_free_ char *from = NULL;

    if (colon && (!at || colon < at))
        len = (size_t)(colon - name);
    from = xstrndup(name, len);
    return docker_path("/images/create?fromImage=%s&tag=%s&platform=%s", from,
                       at      ? at + 1
                       : colon ? colon + 1
                               : "latest",
                       platform);
}

static int images_pull_follow(struct images_pull *p, struct docker_stream *s,
                              const struct deadline *by, struct err *err)
{
    for (;;) {
        _cleanup_json_ json_t *line = NULL;
        int r = docker_stream_next(s, by, &line, err);

        if (r <= 0)
            return r;
        images_pull_take_line(p, line);
        if (p->unread)
            return err_set(err, ERR_CONFLICT, "the pull was cancelled");
    }
}

static int images_pull_run(struct docker_engine *d, const json_t *settings, int progress,
                           const struct deadline *by, struct err *err)
{
    const char *name = docker_text(settings, "name");
    _cleanup_free_ char *path = images_pull_path(name, docker_text(settings, "platform"));
    _cleanup_free_ char *auth = images_pull_auth(settings);
    _cleanup_(docker_stream_closep) struct docker_stream *s = NULL;
    _cleanup_free_ struct images_pull *p = xnew0(struct images_pull);
    int r = docker_stream_ask(docker_client(d), path, auth, by, &s, err);

    if (auth)
        explicit_bzero(auth, strlen(auth));
    if (r < 0)
        return err_wrap(err, "pull '%s'", name);
    p->progress = progress;
    r = images_pull_follow(p, s, by, err);
    if (r >= 0 && p->failure)
        r = images_pull_failed(name, p->failure, err);
    free(p->failure);
    return r;
}

static int images_pull(struct docker_engine *d, const struct image_pull *req,
                       const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_json_ json_t *settings = NULL, *image = NULL, *doc = NULL;
    int r = json_parse("the settings", req->settings, strlen(req->settings), &settings, err);

    if (r < 0)
        return r;
    if (req->name || json_is_true(json_object_get(settings, "plain_http"))) {
        err_set(err, ERR_UNSUPPORTED, "engine '%s': a pull takes no other name and no plain HTTP",
                d->engine.ops->name);
        return err_hint(err,
                        "Use the engine's own commands, such as `docker pull` and `docker tag`.");
    }
    r = images_pull_run(d, settings, req->progress, by, err);
    if (r < 0)
        return r;
    r = images_show(d, docker_text(settings, "name"), by, &image, err);
    if (r < 0)
        return r;
    doc = json_pack("{s:[O]}", "images", image);
    *ret = json_to_text(doc, false);
    return 0;
}

int docker_image(struct engine *e, const struct image_op *req, const struct deadline *by,
                 char **ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_json_ json_t *image = NULL;
    int r;

    if (req->verb == IMAGE_PULL)
        return images_pull(d, &req->pull, by, ret, err);
    if (req->verb != IMAGE_SHOW)
        return images_unsupported(e, err);
    r = images_show(d, req->show.name, by, &image, err);
    if (r < 0)
        return r;
    *ret = json_to_text(image, false);
    return 0;
}
