/*
 * Targets: path decoding and the query.
 */
#include "fuzz.h"
#include "lib/http/wire/http.h"

static void check_path(const char *path)
{
    size_t len = strlen(path);

    MUST(path[0] == '/');
    MUST(!strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../"));
    MUST(!(len >= 3 && strcmp(path + len - 3, "/..") == 0));
    for (size_t i = 0; i < len; i++)
        MUST((unsigned char)path[i] >= 0x20 && path[i] != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"a", "offset", ""};
    char *target = strndup((const char *)data, size), *path = NULL, *query = NULL;

    MUST(target);
    if (http_target_split(target, &path, &query, NULL) >= 0) {
        check_path(path);
        for (size_t i = 0; i < 3; i++) {
            char *value = NULL;

            if (http_query_get(query, keys[i], &value, NULL) >= 0 && value)
                MUST(query && strlen(value) <= strlen(query));
            free(value);
        }
    }
    free(target);
    return 0;
}
