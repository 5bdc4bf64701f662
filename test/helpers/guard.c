/* The switches behind GUARD() in programs that are built for tests. Never in the product. */
#include "lib/base/guard.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static char *chosen; /* from guard_environment() */
static bool is_chosen;

void guard_environment(char *const *env)
{
    const char *names = strv_env_get(env, "RIPCORD_WITHOUT");

    free(chosen);
    chosen = names ? xstrdup(names) : NULL;
    is_chosen = true;
}

bool guard_on(const char *name)
{
    const char *at = is_chosen ? chosen : getenv("RIPCORD_WITHOUT");
    size_t len;

    for (; at && *at; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (len == strlen(name) && memcmp(at, name, len) == 0)
            return false;
    }
    return true;
}
