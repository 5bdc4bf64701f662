/* For the shim that test_walls.py uses: it leaves out what it is told to. Never in the product. */
#include "supervisor/shim/wall.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static char *without; /* of the one sandbox that this process, or the one it is a fork of, is for */

bool wall_stands(const struct plan *plan, const char *wall)
{
    const char *said = strv_env_get(plan->env, "RIPCORD_WITHOUT");

    if (said && !without)
        without = xstrdup(said);
    return wall_up(wall);
}

bool wall_up(const char *wall)
{
    _cleanup_free_ char *copy = without ? xstrdup(without) : NULL;
    char *rest = copy, *word;

    while ((word = strsep(&rest, ",")))
        if (STREQ(word, wall))
            return false;
    return true;
}
