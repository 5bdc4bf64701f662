#include "build/main.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "build/build.h"
#include "image/ids.h"

enum { CONTEXT_FD = 3, LINE_MAX_BYTES = 4 << 20 };

/* ---- lines ---- */

static int read_line(json_t **ret, struct err *err)
{
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    ssize_t n = getline(&line, &size, stdin);

    if (n <= 0)
        return err_set(err, ERR_ENGINE, "the daemon has gone");
    if (n > LINE_MAX_BYTES)
        return err_set(err, ERR_LIMIT, "a line of the daemon's is over %d bytes", LINE_MAX_BYTES);
    return json_parse("a line of the daemon's", line, (size_t)n, ret, err);
}

static void write_line(json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false);

    if (printf("%s\n", text) < 0 || fflush(stdout) != 0)
        _exit(1); /* nobody listens */
    json_decref(doc);
}

static void tell(void *arg, json_t *event)
{
    (void)arg;
    write_line(event);
}

static int ask(const char *what, json_t *doc, struct err *err)
{
    _cleanup_json_ json_t *answer = NULL;
    int r;

    write_line(json_pack("{s:o}", what, doc));
    r = read_line(&answer, err);
    if (r >= 0 && json_object_get(answer, "error"))
        r = json_to_err(answer, err);
    return r;
}

static int ask_run(void *arg, json_t *run, struct err *err)
{
    (void)arg;
    return ask("run", run, err);
}

static int ask_pull(void *arg, json_t *pull, struct err *err)
{
    (void)arg;
    return ask("pull", pull, err);
}

/* ---- verbs ---- */

static int read_ask(json_t *doc, struct build_ask *ret, struct err *err)
{
    json_t *tags = NULL, *args = NULL;
    const struct json_field fields[] = {
        {"dockerfile", JSON_FIELD_STRING, &ret->dockerfile},
        {"target", JSON_FIELD_STRING, &ret->target},
        {"tags", JSON_FIELD_ARRAY, &tags},
        {"args", JSON_FIELD_ARRAY, &args},
        {"no_cache", JSON_FIELD_BOOL, &ret->no_cache},
        {"pull", JSON_FIELD_BOOL, &ret->pull},
        {"network", JSON_FIELD_STRING, &ret->network},
    };
    int r = json_read(doc, NULL, fields, ARRAY_SIZE(fields), err);

    if (r >= 0 && tags)
        r = json_read_strv(tags, "tags", &ret->tags, err);
    if (r >= 0 && args)
        r = json_read_strv(args, "args", &ret->args, err);
    return r;
}

static int run_build(struct images *s, const struct confined_ids *ids, const char *name,
                     json_t **ret, struct err *err)
{
    static const struct build_ops ops = {.tell = tell, .run = ask_run, .pull = ask_pull};
    struct build_ask a = {.dockerfile = "Dockerfile", .network = "packages"};
    _cleanup_json_ json_t *doc = NULL;
    int r = read_line(&doc, err);

    if (r >= 0)
        r = read_ask(doc, &a, err);
    if (r >= 0)
        r = images_lock(s, false, true, err);
    if (r >= 0)
        r = build_image(s, ids, name, CONTEXT_FD, &a, &ops, ret, err);
    strv_free(a.tags);
    strv_free(a.args);
    return r;
}

static int run_clean(struct images *s, const struct confined_ids *ids, const char *name,
                     json_t **ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("tmp/%s", name);
    int r = confined_remove(ids, s->dir, path, err);

    if (r >= 0)
        *ret = json_object();
    return r;
}

static int run(int argc, char **argv, json_t **ret, struct err *err)
{
    struct images s = IMAGES_INIT;
    struct confined_ids ids;
    int r;

    if (argc != 5 || strchr(argv[3], '/') || argv[3][0] == '.')
        return err_set(err, ERR_INVALID, "ripcord-build is started by ripcordd");
    r = image_ids_parse(argv[2], &ids, err);
    if (r >= 0)
        r = images_open(argv[1], &s, err);
    if (r >= 0)
        r = STREQ(argv[4], "build") ? run_build(&s, &ids, argv[3], ret, err)
                                    : run_clean(&s, &ids, argv[3], ret, err);
    images_done(&s);
    return r;
}

int build_main(int argc, char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *done = NULL;
    int r;

    json_need_memory();
    setlocale(LC_CTYPE, "C.UTF-8"); /* else libarchive cannot read names beyond ASCII */
    signal(SIGPIPE, SIG_IGN);
    umask(022);
    r = run(argc, argv, &done, &err);
    write_line(r < 0 ? json_from_err(&err) : json_pack("{s:o}", "done", done));
    return r < 0;
}
