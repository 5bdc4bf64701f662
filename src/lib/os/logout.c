#include "lib/os/logout.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { LOGOUT_TEXT_MAX = 64 << 10 };

/* Below the manager of a user: "…/user@1000.service/…". */
static bool logout_is_below_manager(void)
{
    _cleanup_free_ char *text = NULL, *manager = xasprintf("/user@%u.service/", geteuid());

    return file_read(AT_FDCWD, "/proc/self/cgroup", LOGOUT_TEXT_MAX, &text, NULL, NULL) >= 0 &&
           strstr(text, manager);
}

/* The user's name as logind knows it, from the line NAME=… of its file; NULL: not known. */
static char *logout_user_name(void)
{
    _cleanup_free_ char *text = NULL, *path = xasprintf("/run/systemd/users/%u", geteuid());

    if (file_read(AT_FDCWD, path, LOGOUT_TEXT_MAX, &text, NULL, NULL) < 0)
        return NULL;
    for (char *p = text, *line; (line = strsep(&p, "\n"));)
        if (strncmp(line, "NAME=", 5) == 0 && line[5] && !strchr(line, '/'))
            return xstrdup(line + 5);
    return NULL;
}

bool logout_ends_us(void)
{
    _cleanup_free_ char *name = NULL, *path = NULL;

    if (!logout_is_below_manager())
        return false;
    name = logout_user_name();
    if (!name)
        return false;
    path = xasprintf("/var/lib/systemd/linger/%s", name);
    return access(path, F_OK) < 0;
}
