#include "image/build/main.h"

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/archive/confined-ids.h"
#include "image/build/build.h"
#include "image/oci/digest.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/locale.h"
#include "lib/os/static-program.h"
#include "proto/json-lines.h"

enum { CONTEXT_FD = 3, CONTROL_FD = 4 };

static int build_main_read_request(json_t *doc, struct builder_request *ret, struct err *err)
{
    json_t *tags = NULL, *args = NULL, *agents = NULL;
    const struct json_field fields[] = {
        {"dockerfile", JSON_FIELD_STRING, &ret->dockerfile},
        {"target", JSON_FIELD_STRING, &ret->target},
        {"tags", JSON_FIELD_ARRAY, &tags},
        {"args", JSON_FIELD_ARRAY, &args},
        {"agents", JSON_FIELD_ARRAY, &agents},
        {"no_cache", JSON_FIELD_BOOL, &ret->no_cache},
        {"pull", JSON_FIELD_BOOL, &ret->pull},
        {"thin", JSON_FIELD_BOOL, &ret->digest_only},
        {"network", JSON_FIELD_STRING, &ret->network},
        {"host", JSON_FIELD_STRING, &ret->host},
    };
    int r;

    r = json_read(doc, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    if (tags) {
        r = json_read_strv(tags, "tags", &ret->tags, err);
        if (r < 0)
            return r;
    }
    if (args) {
        r = json_read_strv(args, "args", &ret->args, err);
        if (r < 0)
            return r;
    }
    return agents ? json_read_strv(agents, "agents", &ret->agents, err) : 0;
}

static void build_main_request_done(struct builder_request *request)
{
    strv_free(request->tags);
    strv_free(request->args);
    strv_free(request->agents);
}

static int build_main_build(struct images *s, const struct confined_ids *ids, const char *name,
                            json_t **ret, struct err *err)
{
    _cleanup_json_lines_ struct json_lines in = JSON_LINES_INIT(STDIN_FILENO);
    _cleanup_(daemon_conn_done) struct daemon_conn conn = DAEMON_CONN_INIT(CONTROL_FD);
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_(build_main_request_done) struct builder_request request = {.dockerfile = "Dockerfile",
                                                                         .network = "packages"};
    int r;

    r = json_lines_next(&in, &doc, err);
    if (r <= 0)
        return r < 0 ? r : err_set(err, ERR_ENGINE, "the daemon sent no request");
    r = build_main_read_request(doc, &request, err);
    if (r < 0)
        return r;
    r = daemon_conn_open(&conn, err);
    if (r < 0)
        return r;
    if (request.host) {
        r = images_set_host(s, request.host, err);
        if (r < 0)
            return r;
    }
    r = images_lock(s, false, true, err);
    if (r < 0)
        return r;
    return build_image(s, ids, name, CONTEXT_FD, &request, &conn, ret, err);
}

static int build_main_run(int argc, char **argv, json_t **ret, struct err *err)
{
    _cleanup_images_ struct images s = IMAGES_INIT;
    struct confined_ids ids;
    int r;

    if (argc != 4 || strchr(argv[3], '/') || argv[3][0] == '.') {
        err_set(err, ERR_INVALID, "ripcord-build is not for use by hand: ripcordd starts it");
        return err_hint(err, "Run `ripcord image build`.");
    }
    r = confined_ids_parse(argv[2], &ids, err);
    if (r < 0)
        return r;
    r = images_open(argv[1], &s, err);
    if (r < 0)
        return r;
    return build_main_build(&s, &ids, argv[3], ret, err);
}

int build_main(int argc, char **argv)
{
    _cleanup_json_lines_ struct json_lines out = JSON_LINES_INIT(STDOUT_FILENO);
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *done = NULL;
    int r;

    static_program_init();
    json_need_memory();
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    digest_begin_quickly();
    r = locale_use_utf8(&err);
    if (r >= 0)
        r = build_main_run(argc, argv, &done, &err);
    return !json_lines_write(&out, r < 0 ? json_from_err(&err) : done) || r < 0;
}
