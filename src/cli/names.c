#include "cli/names.h"

#include <string.h>

#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { EXEC_ID_MAX = 64 };

int exec_parse(const char *s, struct err *err)
{
    size_t len = strlen(s);
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

    if (len >= 1 && len <= EXEC_ID_MAX && strspn(s, allowed) == len)
        return 0;
    err_set(err, ERR_INVALID, "invalid exec id '%s'", s);
    return err_hint(
        err, "Run 'ripcord ps --all NAME' to list the ids, or use 'last' for the newest exec.");
}

int exec_lookup(struct cli *cli, const char *sandbox, const char *id, json_t **ret, struct err *err)
{
    _cleanup_free_ char *target = NULL;
    _cleanup_json_ json_t *doc = NULL;
    json_t *exec;
    int r;

    if ((r = parse_name("sandbox name", sandbox, err)) < 0 ||
        (r = exec_parse(id ? id : "last", err)) < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s/execs/%s", sandbox, id ? id : "last");
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    exec = json_object_get(doc, "exec");
    if (!json_text_of(exec, "id"))
        return err_set(err, ERR_ENGINE, "the daemon's response has no exec");
    *ret = json_incref(exec);
    return 0;
}
