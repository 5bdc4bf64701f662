/* For unit tests that test_walls.py runs: without the walls that RIPCORD_WITHOUT names, separated
 * by commas. Never in the product. */
#include "lib/base/guard.h"

#include <stdlib.h>
#include <string.h>

bool wall_up(const char *wall)
{
    const char *at = getenv("RIPCORD_WITHOUT");
    size_t len;

    for (; at && *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (len == strlen(wall) && memcmp(at, wall, len) == 0)
            return false;
    }
    return true;
}
