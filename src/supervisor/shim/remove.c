#include "supervisor/shim/remove.h"

#include <fcntl.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/os/rmtree.h"
#include "lib/os/submap.h"
#include "proto/supervisor.h"

static int remove_tree(void *name)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (rmtree(SUP_FD_CONTROL, name, &err) >= 0)
        return 0;
    log_warn("%s", err.msg);
    return 1;
}

static int remove_parse(char **args, struct submap *ret, struct err *err)
{
    uint64_t uid, gid;
    int r;

    if (!args[0] || !args[1] || !args[2] || args[3] || strchr(args[0], '/'))
        return err_set(err, ERR_INVALID, "remove: a name, a uid and a gid are required");
    r = parse_u64(args[1], 1, UINT32_MAX - SUBMAP_COUNT, &uid, err);
    if (r < 0)
        return r;
    r = parse_u64(args[2], 1, UINT32_MAX - SUBMAP_COUNT, &gid, err);
    if (r < 0)
        return r;
    *ret = (struct submap){(uint32_t)uid, (uint32_t)gid};
    return 0;
}

int remove_main(char **args)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct submap map;
    int r;

    fcntl(SUP_FD_CONTROL, F_SETFD, FD_CLOEXEC);
    if (remove_parse(args, &map, &err) < 0) {
        log_warn("%s", err.msg);
        return 1;
    }
    r = submap_run(&map, remove_tree, args[0], &err);
    if (r < 0)
        log_warn("%s", err.msg);
    return r != 0;
}
