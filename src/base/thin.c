#include "base/thin.h"

#include <stdio.h>
#include <string.h>

void thin_format(uint64_t size, const char *hex, char ret[static THIN_VALUE_MAX])
{
    snprintf(ret, THIN_VALUE_MAX, "%llu %s", (unsigned long long)size, hex);
}

const char *thin_digits(const char *value)
{
    size_t n = strspn(value, "0123456789");
    const char *hex = value + n + 1;

    if (n == 0 || n > 20 || value[n] != ' ' || strlen(hex) != BLAKE2B_HEX - 1)
        return NULL;
    return strspn(hex, "0123456789abcdef") == BLAKE2B_HEX - 1 ? hex : NULL;
}
