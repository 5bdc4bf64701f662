/*
 * A request's target, and the names that are derived from the target.
 */
#include "fuzz.h"
#include "packages/package-name.h"

static void check(const char *s)
{
    char out[NAME_MAX_LEN + 1], again[NAME_MAX_LEN + 1];

    MUST(strcmp(s, ".") != 0 && strcmp(s, "..") != 0);
    if (name_pypi(s, out)) {
        MUST(!strpbrk(out, "/._%") && name_pypi(out, again) && strcmp(out, again) == 0);
    }
    if (name_npm(s)) {
        MUST(!strstr(s, "..") || s[0] != '.');
        MUST(!strchr(name_npm_bare(s), '/') && name_npm_bare(s)[0] != '.');
    }
    if (name_file(s))
        MUST(!strchr(s, '/') && s[0] != '.');
    (void)name_matches(s, "@corp/lib");
    (void)name_matches("*a*", s);
    name_pypi_version(s, out, sizeof(out));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *target = strndup((const char *)data, size);
    char *s[NAME_SEGMENTS_MAX];
    size_t n = 0;

    MUST(target);
    if (name_split_target(target, s, &n, NULL) >= 0) {
        MUST(n >= 1 && n <= NAME_SEGMENTS_MAX);
        for (size_t i = 0; i < n; i++)
            check(s[i]);
    }
    free(target);
    return 0;
}
