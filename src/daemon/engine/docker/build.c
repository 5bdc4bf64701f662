#include "daemon/engine/docker/build.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/engine/build.h"
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/build-lines.h"
#include "dockerapi/error-classes.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { PATH_MAX_BYTES = 48 << 10 }; /* limit for the path of a request; the engine accepts 1 MiB */

struct docker_build_answer {
    struct docker_engine *engine;
    const struct build_request *req;
    struct build *build;
    struct build_lines *lines;
    struct buildkit *kit;      /* parser for Docker; or NULL */
    struct podman_log *podman; /* parser for Podman; or NULL */
    char *id;                  /* id of the image; NULL: not known yet */
    char *failure;             /* the engine's message; NULL: no failure */
};

static void docker_build_answer_done(struct docker_build_answer *a)
{
    build_lines_free(a->lines);
    buildkit_free(a->kit);
    podman_log_free(a->podman);
    free(a->id);
    free(a->failure);
}
#define _cleanup_answer_ __attribute__((cleanup(docker_build_answer_done)))

/* ---- the request ---- */

static int docker_build_add(struct buf *b, const char *format, const char *value)
{
    _cleanup_free_ char *text = docker_path(format, value);

    return buf_append_str(b, text);
}

static int docker_build_add_args(struct buf *b, char *const *args)
{
    _cleanup_json_ json_t *doc = json_object();
    _cleanup_free_ char *text = NULL;

    for (; args && *args; args++) {
        _cleanup_free_ char *name = xstrndup(*args, strcspn(*args, "="));

        json_object_set_new(doc, name, json_string(*args + strlen(name) + 1));
    }
    if (!json_object_size(doc))
        return 0;
    text = json_to_text(doc, false);
    return docker_build_add(b, "&buildargs=%s", text);
}

/* Fails only if the buffer is full. With rm and forcerm, Podman keeps no container of a step. */
static int docker_build_add_path(struct buf *b, const struct build_request *req)
{
    bool no_network = req->network && STREQ(req->network, "none"); /* `open`: engine's default */

    if (docker_build_add(b, "/build?version=2&rm=1&forcerm=1&dockerfile=%s", req->dockerfile) < 0)
        return -1;
    for (char **t = req->tags; t && *t; t++)
        if (docker_build_add(b, "&t=%s", *t) < 0)
            return -1;
    if (req->target && docker_build_add(b, "&target=%s", req->target) < 0)
        return -1;
    if (req->platform && docker_build_add(b, "&platform=%s", req->platform) < 0)
        return -1;
    if (buf_append_str(b, no_network ? "&networkmode=none" : "") < 0 ||
        buf_append_str(b, req->pull ? "&pull=1" : "") < 0 ||
        buf_append_str(b, req->no_cache ? "&nocache=1" : "") < 0)
        return -1;
    return docker_build_add_args(b, req->args);
}

static int docker_build_check(const struct docker_engine *d, const struct build_request *req,
                              struct err *err)
{
    if (req->network && STREQ(req->network, "packages")) {
        err_set(err, ERR_UNSUPPORTED, "network 'packages': not available for builds on engine '%s'",
                d->engine.ops->name);
        return err_hint(err, "Use network 'none' or 'open', or build with the native engine.");
    }
    if (!req->n_secrets && !req->agents)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "%s: not supported for builds on engine '%s'",
            req->n_secrets ? "secrets" : "ssh agents", d->engine.ops->name);
    return err_hint(err, "Build with the native engine, or with the engine's own command.");
}

/* ---- the answer ---- */

static int docker_build_take_line(struct docker_build_answer *a, const json_t *line,
                                  struct err *err)
{
    const char *id = json_string_value(json_object_get(json_object_get(line, "aux"), "ID"));
    const json_t *stream = json_object_get(line, "stream");
    const char *words =
        json_string_value(json_object_get(json_object_get(line, "errorDetail"), "message"));

    if (!words)
        words = json_string_value(json_object_get(line, "error"));
    if (words && !a->failure)
        a->failure = docker_words(words, strcspn(words, "\n"));
    if (id) {
        free(a->id);
        a->id = xstrdup(id);
    }
    if (a->podman && json_is_string(stream))
        podman_log_take(a->podman, json_string_value(stream), json_string_length(stream));
    if (a->kit && STREQ(docker_text(line, "id"), "moby.buildkit.trace"))
        return buildkit_take(a->kit, line, err);
    return 0;
}

static int docker_build_take_lines(struct docker_build_answer *a, struct docker_stream *s,
                                   const struct deadline *by, struct err *err)
{
    int r;

    for (;;) {
        _cleanup_json_ json_t *line = NULL;

        r = docker_stream_next(s, by, &line, err);
        if (r <= 0)
            break;
        r = docker_build_take_line(a, line, err);
        if (r < 0)
            return r;
    }
    if (r == 0 && build_stopped(a->build))
        return err_set(err, ERR_CONFLICT, "the build was cancelled");
    return r;
}

/* Whether the message is about a missing image named "host". */
static bool docker_build_is_about_host(const char *failure)
{
    static const char *const words[] = {"library/host:latest", "library/host/manifests/",
                                        "access denied for host,", "short-name \"host\""};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strstr(failure, words[i]))
            return true;
    return false;
}

/* A failed build is an error in the Dockerfile (invalid), unless the message has a known cause
 * such as a full disk. */
static int docker_build_report_failure(const struct docker_build_answer *a, const char *path,
                                       struct err *err)
{
    enum docker_reason reason = DOCKER_OTHER;
    const struct docker_answer words = {
        .flavour = docker_client(a->engine)->flavour,
        .path = path,
        .status = 500,
        .body = a->failure,
        .len = strlen(a->failure),
    };

    if (docker_build_is_about_host(a->failure)) {
        err_set(err, ERR_UNSUPPORTED, "FROM host: not available on engine '%s': %s",
                a->engine->engine.ops->name, a->failure);
        return err_hint(
            err, "Build with '--engine native': only the native engine has the image 'host'.");
    }
    docker_classify(&words, &reason, err);
    if (reason != DOCKER_OTHER)
        return -(int)(err ? err->code : ERR_ENGINE);
    err_done(err);
    err_set(err, ERR_INVALID, "%s", a->failure);
    if (strstr(a->failure, "docker/dockerfile"))
        return err_hint(err, "Remove the '# syntax=' line of the Dockerfile: it makes the engine "
                             "download a parser.");
    return -ERR_INVALID;
}

static int docker_build_send(struct docker_build_answer *a, const char *path,
                             const struct deadline *by, struct err *err)
{
    _cleanup_(docker_stream_closep) struct docker_stream *s = NULL;
    int r = docker_stream_upload(docker_client(a->engine), path, a->req->context,
                                 build_stop_fd(a->build), by, &s, NULL, err);

    if (r < 0)
        return r;
    return docker_build_take_lines(a, s, by, err);
}

static int docker_build_run(struct docker_build_answer *a, const char *path,
                            const struct deadline *by, struct err *err)
{
    int r = docker_build_send(a, path, by, err);

    if (a->podman)
        podman_log_end(a->podman, r < 0 ? err->msg : a->failure);
    if (r < 0)
        return r;
    if (a->failure)
        return docker_build_report_failure(a, path, err);
    if (!a->id)
        return err_set(err, ERR_ENGINE, "the engine's answer has no image id");
    return 0;
}

int docker_build(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_answer_ struct docker_build_answer a = {.engine = d, .req = req, .build = b};
    _cleanup_buf_ struct buf path = BUF_INIT(PATH_MAX_BYTES);
    _cleanup_json_ json_t *image = json_object();
    int r = docker_build_check(d, req, err);

    if (r < 0)
        return r;
    if (docker_build_add_path(&path, req) < 0)
        return err_set(err, ERR_LIMIT,
                       "build: names and arguments are too long (at most %d KiB together)",
                       PATH_MAX_BYTES >> 10);
    a.lines = build_lines_new(req);
    if (docker_client(d)->flavour == DOCKER_FLAVOUR_PODMAN)
        a.podman = podman_log_new(b, a.lines);
    else
        a.kit = buildkit_new(b, a.lines);
    r = docker_build_run(&a, buf_data(&path), by, err);
    if (r < 0)
        return r;
    json_object_set_new(image, "id", json_string(a.id));
    json_object_set_new(image, "names", json_from_strv(req->tags));
    *ret = json_to_text(image, false);
    return 0;
}
