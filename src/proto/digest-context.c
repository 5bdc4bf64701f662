#include "proto/digest-context.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/fd.h"

void digest_context_format(uint64_t size, const char *hex,
                           char ret[static DIGEST_CONTEXT_VALUE_MAX])
{
    snprintf(ret, DIGEST_CONTEXT_VALUE_MAX, "%llu %s", (unsigned long long)size, hex);
}

int digest_context_read(int fd, char *piece, size_t len, char ret[static DIGEST_CONTEXT_VALUE_MAX])
{
    char hex[BLAKE2B_HEX];
    struct blake2b b;
    uint64_t size = 0;
    ssize_t n;

    blake2b_init(&b);
    while ((n = fd_read_full(fd, piece, len)) > 0) {
        blake2b_add(&b, piece, (size_t)n);
        size += (uint64_t)n;
    }
    if (n < 0)
        return (int)n;
    blake2b_end(&b, hex);
    digest_context_format(size, hex, ret);
    return 0;
}

const char *digest_context_digits(const char *value)
{
    size_t n = strspn(value, "0123456789");
    const char *hex = value + n + 1;

    if (n == 0 || n > 20 || value[n] != ' ' || strlen(hex) != BLAKE2B_HEX - 1)
        return NULL;
    return strspn(hex, "0123456789abcdef") == BLAKE2B_HEX - 1 ? hex : NULL;
}
