#include "lib/base/image-name.h"

#include <string.h>

#include "lib/base/xalloc.h"

const char *image_name_short(const char *name)
{
    static const char registry[] = "docker.io/", library[] = "library/";

    while (strncmp(name, registry, strlen(registry)) == 0) {
        name += strlen(registry);
        if (strncmp(name, library, strlen(library)) == 0)
            name += strlen(library);
    }
    return name;
}

/* For "docker.io/other.example/x" it is other.example: the pull would go to that host. */
char *image_name_registry(const char *name)
{
    const char *s = image_name_short(name);
    size_t len = strcspn(s, "/");

    if (s[len] && (memchr(s, '.', len) || memchr(s, ':', len) ||
                   (len == 9 && strncmp(s, "localhost", 9) == 0)))
        return xstrndup(s, len);
    return xstrdup("docker.io");
}
