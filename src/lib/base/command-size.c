#include "lib/base/command-size.h"

#include <string.h>

size_t command_size(char *const *v)
{
    size_t size = 0;

    for (; v && *v; v++)
        size += strlen(*v) + COMMAND_STRING_COST;
    return size;
}

char *const *command_oversized(char *const *v)
{
    for (; v && *v; v++)
        if (strlen(*v) >= COMMAND_STRING_MAX)
            return v;
    return NULL;
}
