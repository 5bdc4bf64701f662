#include "cli/run-image.h"

#include <string.h>

#include "cli/image.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static const struct cli_option image_options[] = {
    {"pull", 0, "POLICY",
     "pull the image of --image from its registry: missing (if it is not here; default), never or "
     "always",
     "missing never always"},
    {0},
};
const struct cli_group image_group = {"Image", image_options};

/* The image of --image, unless it comes with the engine, or the daemon will refuse every image. */
static const char *run_image_name(const struct cli_args *args)
{
    const char *name = args_get(args, "image"), *isolation = args_get(args, "isolation");

    if (isolation && STREQ(isolation, "confined"))
        return NULL;
    return name && *name && !STREQ(name, "host") && !STREQ(name, "default") ? name : NULL;
}

/* The default engine of new sandboxes. */
static int run_image_default_engine(struct cli *cli, char **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *value;
    int r = cli_call(cli, "GET", "/v1/config", NULL, &doc, err);

    if (r < 0)
        return r;
    value = json_text_of(json_object_get(json_object_get(doc, "config"), "engine"), "value");
    *ret = xstrdup(value ? value : "native");
    return 0;
}

/* The engine that the sandbox is or will be on. sandbox: its name, or NULL. The caller frees
 * *ret. */
static int run_image_engine(struct cli *cli, const struct cli_args *args, const char *sandbox,
                            char **ret, struct err *err)
{
    const char *given = args_get(args, "engine"), *engine;
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *doc = NULL;
    int r;

    if (given) {
        *ret = xstrdup(given);
        return 0;
    }
    if (!sandbox)
        return run_image_default_engine(cli, ret, err);
    target = xasprintf("/v1/sandboxes/%s", sandbox);
    r = cli_call(cli, "GET", target, NULL, &doc, NULL);
    engine = r < 0 ? NULL : json_text_of(json_object_get(doc, "sandbox"), "engine");
    if (!engine)
        return run_image_default_engine(cli, ret, err);
    *ret = xstrdup(engine);
    return 0;
}

static int run_image_show(struct cli *cli, const char *name, const char *engine, json_t **ret,
                          struct err *err)
{
    _cleanup_free_ char *text = client_escape(name), *where = client_escape(engine);
    _cleanup_free_ char *target = xasprintf("/v1/images/show?name=%s&engine=%s", text, where);

    return cli_call(cli, "GET", target, NULL, ret, err);
}

/* Returns 1 when the image is here, 0 when not. */
static int run_image_is_here(struct cli *cli, const char *name, const char *engine, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_json_ json_t *doc = NULL;
    int r = run_image_show(cli, name, engine, &doc, &why);

    if (r >= 0)
        return 1;
    return why.code == ERR_NOT_FOUND ? 0 : err_move(err, &why);
}

int run_image_ensure(struct cli *cli, const struct cli_args *args, const char *sandbox,
                     struct err *err)
{
    static const char *const policies[] = {"missing", "never", "always"};
    const char *name = run_image_name(args), *policy = args_get(args, "pull");
    _cleanup_free_ char *engine = NULL;
    _cleanup_json_ json_t *pulled = NULL;
    int r = args_check_words(args, "pull", policies, ARRAY_SIZE(policies), err);

    if (r < 0)
        return r;
    if (policy && !name)
        return err_set(err, ERR_INVALID, "--pull needs --image with an image of a registry");
    if (!name || (policy && STREQ(policy, "never")))
        return 0;
    r = run_image_engine(cli, args, sandbox, &engine, err);
    if (r < 0)
        return r;
    if (!policy || !STREQ(policy, "always")) {
        r = run_image_is_here(cli, name, engine, err);
        if (r != 0)
            return MIN(r, 0);
    }
    return image_pull_quietly(cli, name, engine, &pulled, err);
}

static void run_image_add_words(char ***argv, const json_t *list)
{
    const json_t *word;
    size_t i;

    json_array_foreach (list, i, word)
        strv_add(argv, json_string_value(word) ? json_string_value(word) : "");
}

int run_image_command(struct cli *cli, const struct cli_args *args, char ***ret, struct err *err)
{
    const char *name = run_image_name(args);
    _cleanup_strv_ char **argv = NULL;
    _cleanup_free_ char *engine = NULL;
    _cleanup_json_ json_t *image = NULL;
    int r;

    if (!name) {
        err_set(err, ERR_INVALID, "'ripcord run' needs a command");
        return err_hint(err, "Usage: ripcord run [options] [--] CMD [ARG...]");
    }
    r = run_image_engine(cli, args, NULL, &engine, err);
    if (r < 0)
        return r;
    r = run_image_show(cli, name, engine, &image, err);
    if (r < 0)
        return r;
    run_image_add_words(&argv, json_object_get(image, "entrypoint"));
    run_image_add_words(&argv, json_object_get(image, "cmd"));
    if (!argv) {
        err_set(err, ERR_INVALID, "image '%s' has no command of its own", name);
        return err_hint(err, "Write a command after the options.");
    }
    *ret = TAKE_PTR(argv);
    return 0;
}
