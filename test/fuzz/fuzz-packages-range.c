/* The field Range: whatever it says, a part lies inside of the file. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "lib/base/xalloc.h"
#include "packages/http-range.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const uint64_t sizes[] = {0, 1, 1000, UINT64_MAX};
    char *text = xstrndup((const char *)data, len);

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t first = 0, count = 0;

        if (range_parse(text, sizes[i], &first, &count) == RANGE_PART)
            MUST(count > 0 && count <= sizes[i] && first <= sizes[i] - count);
    }
    free(text);
    return 0;
}
