/* Images of an engine: each handler asks the manager and sends its JSON answer unchanged. */
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/api/drain.h"
#include "daemon/api/upload.h"
#include "daemon/core/images/images.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* Asks the engine of ?engine=NAME, or the default engine for images. */
static void api_images_ask(struct api_call *c, const struct image_op *what)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *engine = NULL;

    if (call_query_engine(c, &engine, &err) < 0 ||
        manager_image(c->manager, engine, what, call_answered, c, &err) < 0)
        call_reply_err(c, &err);
}

static int api_images_name_of(const struct api_call *c, bool needed, char **ret, struct err *err)
{
    int r = call_query_text(c, "name", ret, err);

    if (r < 0)
        return r;
    if (needed && (!*ret || !**ret))
        return err_set(err, ERR_INVALID, "query parameter 'name' is missing");
    return 0;
}

void handle_image_list(struct api_call *c)
{
    api_images_ask(c, &(struct image_op){.verb = IMAGE_LIST});
}

void handle_image_show(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL;

    if (api_images_name_of(c, true, &name, &err) < 0)
        call_reply_err(c, &err);
    else
        api_images_ask(c, &(struct image_op){.verb = IMAGE_SHOW, .show.name = name});
}

void handle_image_remove(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL;

    if (api_images_name_of(c, true, &name, &err) < 0)
        call_reply_err(c, &err);
    else
        api_images_ask(c, &(struct image_op){.verb = IMAGE_REMOVE, .remove.name = name});
}

void handle_image_prune(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (json_read(c->body, NULL, NULL, 0, &err) < 0)
        call_reply_err(c, &err);
    else
        api_images_ask(c, &(struct image_op){.verb = IMAGE_PRUNE});
}

static void api_images_imported(void *arg, const struct err *err, const char *json)
{
    upload_end(arg, err, json);
}

void handle_image_import(struct api_call *c)
{
    const char *type = http_field_get(http_req_head(c->req), "content-type");
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL, *engine = NULL;
    struct image_op what = {.verb = IMAGE_IMPORT, .import.archive = -1};
    struct manager *m = c->manager;
    struct upload *u = NULL;

    if (!type || strcasecmp(type, "application/x-tar") != 0) {
        err_set(&err, ERR_INVALID, "request body: Content-Type must be application/x-tar");
        call_reply_status(c, 415, &err);
        return;
    }
    if (api_images_name_of(c, false, &name, &err) >= 0 && call_query_engine(c, &engine, &err) >= 0)
        u = upload_start(c, &what.import.archive, &err);
    if (!u) {
        call_reply_err(c, &err);
        return;
    }
    what.import.name = name;
    if (manager_image(m, engine, &what, api_images_imported, u, &err) < 0)
        upload_end(u, &err, NULL);
}

static void api_images_exported(void *arg, const struct err *err, const char *json _unused_)
{
    drain_end(arg, err, NULL);
}

void handle_image_export(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *name = NULL, *engine = NULL, *format = NULL, *text = NULL;
    struct image_op what = {.verb = IMAGE_EXPORT, .export.archive = -1};
    struct drain_config config = {.type = "application/x-tar"};
    struct manager *m = c->manager;
    struct drain *d = NULL;

    if (api_images_name_of(c, true, &name, &err) >= 0 && call_query_engine(c, &engine, &err) >= 0 &&
        call_query_text(c, "format", &format, &err) >= 0) {
        config.what = text = xasprintf("export of image '%.200s'", name);
        d = drain_start(c, &config, &what.export.archive, &err);
    }
    if (!d) {
        call_reply_err(c, &err);
        return;
    }
    what.export.name = name;
    what.export.format = format ? format : (char *)"oci";
    if (manager_image(m, engine, &what, api_images_exported, d, &err) < 0)
        drain_end(d, &err, NULL);
}

/* ---- registries ---- */

/* The fields of a pull or push. Borrowed from the body. */
struct transfer_fields {
    const char *name, *other, *platform, *username, *password;
    bool plain_http;
};

/* `other` is the local name of a pulled image, or the destination of a pushed one. */
static int api_images_read_transfer(const json_t *body, bool push, struct transfer_fields *f,
                                    struct err *err)
{
    const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, &f->name},
        {push ? "to" : "as", JSON_FIELD_STRING, &f->other},
        {"plain_http", JSON_FIELD_BOOL, &f->plain_http},
        {"username", JSON_FIELD_STRING, &f->username},
        {"password", JSON_FIELD_STRING, &f->password},
        {"platform", JSON_FIELD_STRING, &f->platform}, /* last: only a pull has it */
    };
    int r = json_read(body, NULL, fields, ARRAY_SIZE(fields) - push, err);

    if (r < 0)
        return r;
    if (!f->name || !*f->name)
        return err_set(err, ERR_INVALID, "field 'name' is missing");
    return 0;
}

/* remote: the name of the image in the registry. */
static char *api_images_transfer_text(const struct transfer_fields *f, const char *remote)
{
    _cleanup_json_ json_t *doc =
        json_pack("{s:s, s:s*, s:b, s:s*, s:s*}", "name", remote, "platform", f->platform,
                  "plain_http", f->plain_http, "username", f->username, "password", f->password);

    return json_to_text(doc, false);
}

static void api_images_transferred(void *arg, const struct err *err, const char *json)
{
    drain_end(arg, err, json);
}

static void api_images_transfer(struct api_call *c, bool push)
{
    const struct drain_config config = {
        .type = "application/x-ndjson", .what = push ? "image push" : "image pull", .lines = true};
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *here = NULL, *text = NULL, *engine = NULL;
    struct transfer_fields f = {0};
    struct image_op what = {.verb = push ? IMAGE_PUSH : IMAGE_PULL};
    struct manager *m = c->manager;
    struct drain *d = NULL;
    int progress = -1;

    if (api_images_read_transfer(c->body, push, &f, &err) >= 0 &&
        call_query_engine(c, &engine, &err) >= 0) {
        const char *local = push ? f.name : f.other;

        here = local ? xstrdup(local) : NULL;
        text = api_images_transfer_text(&f, push && f.other ? f.other : f.name);
        d = drain_start(c, &config, &progress, &err);
    }
    if (push)
        what.push = (struct image_push){here, text, progress};
    else
        what.pull = (struct image_pull){here, text, progress};
    if (!d)
        call_reply_err(c, &err);
    else if (manager_image(m, engine, &what, api_images_transferred, d, &err) < 0)
        drain_end(d, &err, NULL);
    if (text)
        explicit_bzero(text, strlen(text));
}

void handle_image_pull(struct api_call *c)
{
    api_images_transfer(c, false);
}

void handle_image_push(struct api_call *c)
{
    api_images_transfer(c, true);
}
