/* Images of an engine: thin calls, as its answers are JSON of our own make. */
#include <string.h>

#include "api/call.h"
#include "api/drain.h"
#include "api/upload.h"
#include "base/cleanup.h"
#include "base/xalloc.h"
#include "core/images.h"

static void answered(void *arg, const struct err *err, const char *json)
{
    struct call *c = arg;

    if (err)
        call_reply_err(c, err);
    else
        call_reply_text(c, 200, json);
}

/* ?engine=NAME, else the one that keeps images. */
static void ask(struct call *c, const struct image_ask *what)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *engine = NULL;

    if (call_query_text(c, "engine", &engine, &err) < 0 ||
        manager_image(c->manager, engine, what, answered, c, &err) < 0)
        call_reply_err(c, &err);
}

static int name_of(const struct call *c, bool needed, char **ret, struct err *err)
{
    int r = call_query_text(c, "name", ret, err);

    if (r >= 0 && needed && (!*ret || !**ret))
        return err_set(err, ERR_INVALID, "query parameter 'name' is missing");
    return r;
}

static void ask_named(struct call *c, enum image_verb verb)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL;

    if (name_of(c, true, &name, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    ask(c, &(struct image_ask){.verb = verb, .name = name, .fd = -1});
}

void handle_image_list(struct call *c)
{
    ask(c, &(struct image_ask){.verb = IMAGE_LIST, .fd = -1});
}

void handle_image_show(struct call *c)
{
    ask_named(c, IMAGE_SHOW);
}

void handle_image_remove(struct call *c)
{
    ask_named(c, IMAGE_REMOVE);
}

void handle_image_prune(struct call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (json_read(c->body, NULL, NULL, 0, &err) < 0)
        call_reply_err(c, &err);
    else
        ask(c, &(struct image_ask){.verb = IMAGE_PRUNE, .fd = -1});
}

static void imported(void *arg, const struct err *err, const char *json)
{
    upload_end(arg, err, json);
}

void handle_image_import(struct call *c)
{
    const char *type = http_field_get(http_req_head(c->req), "content-type");
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL, *engine = NULL;
    struct image_ask what = {.verb = IMAGE_IMPORT, .fd = -1};
    struct manager *m = c->manager;
    struct upload *u = NULL;

    if (!type || strcasecmp(type, "application/x-tar") != 0) {
        err_set(&err, ERR_INVALID, "the body's Content-Type must be application/x-tar");
        call_reply_status(c, 415, &err);
        return;
    }
    if (name_of(c, false, &name, &err) >= 0 && call_query_text(c, "engine", &engine, &err) >= 0)
        u = upload_start(c, &what.fd, &err);
    if (!u) {
        call_reply_err(c, &err);
        return;
    }
    what.name = name;
    if (manager_image(m, engine, &what, imported, u, &err) < 0)
        upload_end(u, &err, NULL);
}

static void exported(void *arg, const struct err *err, const char *json _unused_)
{
    drain_end(arg, err, NULL);
}

void handle_image_export(struct call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL, *engine = NULL, *format = NULL, *text = NULL;
    struct image_ask what = {.verb = IMAGE_EXPORT, .fd = -1};
    struct drain_config config = {.type = "application/x-tar"};
    struct manager *m = c->manager;
    struct drain *d = NULL;

    if (name_of(c, true, &name, &err) >= 0 && call_query_text(c, "engine", &engine, &err) >= 0 &&
        call_query_text(c, "format", &format, &err) >= 0) {
        config.what = text = xasprintf("the export of image '%.200s'", name);
        d = drain_start(c, &config, &what.fd, &err);
    }
    if (!d) {
        call_reply_err(c, &err);
        return;
    }
    what.name = name;
    what.detail = format ? format : (char *)"oci";
    if (manager_image(m, engine, &what, exported, d, &err) < 0)
        drain_end(d, &err, NULL);
}
