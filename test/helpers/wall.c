/* For the shim that test_walls.py uses: it leaves out what it is told to. Never in the product. */
#include "shim/wall.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "base/xalloc.h"

bool wall_stands(const struct plan *plan, const char *wall)
{
    const char *without = strv_env_get(plan->env, "RIPCORD_WITHOUT");
    _cleanup_free_ char *copy = without ? xstrdup(without) : NULL;
    char *rest = copy, *word;

    while ((word = strsep(&rest, ",")))
        if (STREQ(word, wall))
            return false;
    return true;
}
