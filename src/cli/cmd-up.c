/* ripcord up: makes sure that a sandbox exists and runs. */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/run-image.h"
#include "cli/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

static int add_clear(const struct cli_args *args, json_t *spec, struct err *err)
{
    _cleanup_json_ json_t *list = json_array();
    const char *v;

    for (size_t i = 0; (v = args_next(args, "clear", &i));) {
        json_t *text = json_string(v);

        if (!text)
            return err_set(err, ERR_INVALID, "--clear: the value is not valid UTF-8");
        json_array_append_new(list, text);
    }
    if (json_array_size(list))
        json_object_set(spec, "clear", list);
    return 0;
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *spec = NULL, *doc = NULL;
    _cleanup_free_ char *target = NULL;
    const char *name = args->words[0], *action;
    const json_t *w;
    size_t i;
    int r;

    if ((r = parse_name("sandbox name", name, err)) < 0 ||
        (r = spec_from_args(args, true, &spec, err)) < 0 || (r = add_clear(args, spec, err)) < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s", name);
    /* Only against typos: a sandbox that is removed at this moment is made again. */
    if (args_has(args, "no-create") && (r = cli_call(cli, "GET", target, NULL, NULL, err)) < 0)
        return r;
    r = run_image_ensure(cli, args, name, err);
    if (r < 0)
        return r;
    r = cli_call(cli, "PUT", target, spec, &doc, err);
    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
        return 0;
    }
    json_array_foreach (json_object_get(doc, "warnings"), i, w)
        output_note(false, "warning: %s", json_string_value(w) ? json_string_value(w) : "?");
    action = json_text_of(doc, "action");
    printf("%s: %s\n", name, action ? action : "up");
    return 0;
}

static const struct cli_option clear_options[] = {
    {"clear", 0, "LIST[=KEY]",
     "remove stored entries before the given ones are added: all of env, labels, mounts or caches, "
     "or the one with that key, e.g. mounts=/data; may be repeated",
     "env labels mounts caches"},
    {0},
};
static const struct cli_option up_options[] = {
    {"no-create", 0, NULL, "fail if the sandbox does not exist", NULL},
    {0},
};
static const struct cli_group up_group = {"Options", up_options};
static const struct cli_group clear_group = {"Lists", clear_options};
static const struct cli_group *const groups[] = {&spec_group,  &image_group, &limits_group,
                                                 &lease_group, &place_group, &clear_group,
                                                 &up_group,    NULL};

const struct cli_command cmd_up = {
    .name = "up",
    .summary = "create a sandbox or start an existing one",
    .usage = "up NAME [options]",
    .details =
        "Makes sure that the sandbox NAME exists and runs. For an existing sandbox, options that "
        "are not given keep their values. A changed option re-creates the sandbox when it is "
        "idle; only /home/agent is kept. If the new sandbox cannot start, the old one is put back "
        "and started again. Leases and labels change at once, also while commands run.\n\n"
        "Each --env, --label, --mount and --cache adds an entry, or replaces the stored entry with "
        "the same name, target or tool; other stored entries stay. --clear removes entries. "
        "Variables may be as large as Linux allows: see LIMITS in ripcord(1).\n\n"
        "A folder of --mount belongs to the sandbox's user inside, and its files to the folder's "
        "owner outside. If root owns the folder, the sandbox's files there belong to uid "
        "2147483646 instead, so that they are never root's: give the folder to an ordinary user, "
        "or accept the risk with no_root_squash. In a sandbox with a writable mount, no command "
        "can set a set-user-id or set-group-id bit.",
    .examples = "ripcord up box\tuse the defaults\n"
                "ripcord up box --memory 1G --cpus 1 --network none\tset limits\n"
                "ripcord up box --mount ~/src:/src:ro\tmount a folder of this machine\n"
                "ripcord up box --clear mounts --clear env=DEBUG\tremove all mounts and a variable",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 1,
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
