#include "daemon/engine/native/subids.h"

#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/native/probe.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { SUBID_FILE_MAX = 1 << 20, PASSWD_BUF = 16 << 10, SUBIDS_FIRST = 100000 };

static uint32_t subids_parse_line(char *line, const char *name, const char *number)
{
    char *first = strchr(line, ':'), *count = first ? strchr(first + 1, ':') : NULL;
    uint64_t f, c;

    if (!count)
        return 0;
    *first++ = *count++ = '\0';
    if ((!name || !STREQ(line, name)) && !STREQ(line, number))
        return 0;
    if (parse_u64(count, SUBMAP_COUNT, UINT32_MAX, &c, NULL) < 0 ||
        parse_u64(first, 1, UINT32_MAX - SUBMAP_COUNT, &f, NULL) < 0)
        return 0;
    return (uint32_t)f;
}

uint32_t subids_parse(char *text, const char *name, uint32_t uid)
{
    _cleanup_free_ char *number = xasprintf("%u", uid);

    for (char *line; (line = strsep(&text, "\n"));) {
        uint32_t first = subids_parse_line(line, name, number);

        if (first)
            return first;
    }
    return 0;
}

static uint32_t subids_first_of(const char *path, const char *name)
{
    _cleanup_free_ char *text = NULL;

    if (file_read(AT_FDCWD, path, SUBID_FILE_MAX, &text, NULL, NULL) < 0)
        return 0;
    return subids_parse(text, name, geteuid());
}

/* The usual first range. The ids of a container with a user namespace of its own are too few. */
static int subids_add_hint(const char *name, struct err *err)
{
    if (!probe_ids_exist(SUBIDS_FIRST, SUBMAP_COUNT))
        return err_hint(err, "Give the container more ids: at least %d.",
                        SUBIDS_FIRST + SUBMAP_COUNT);
    return err_hint(err, "Run 'usermod --add-subuids %1$d-%2$d --add-subgids %1$d-%2$d %3$s'.",
                    SUBIDS_FIRST, SUBIDS_FIRST + SUBMAP_COUNT, name);
}

int subids_find(struct submap *ret, struct err *err)
{
    _cleanup_free_ char *buf = xmalloc(PASSWD_BUF);
    struct passwd pw, *found = NULL;
    const char *name;

    *ret = (struct submap){0};
    if (access(SUBMAP_UID_PROGRAM, X_OK) < 0 || access(SUBMAP_GID_PROGRAM, X_OK) < 0) {
        err_set(err, ERR_UNSUPPORTED, "newuidmap is not installed");
        return err_hint(err, "Install the package 'uidmap'.");
    }
    name = getpwuid_r(geteuid(), &pw, buf, PASSWD_BUF, &found) == 0 && found ? pw.pw_name : NULL;
    ret->uid = subids_first_of("/etc/subuid", name);
    ret->gid = subids_first_of("/etc/subgid", name);
    if (ret->uid && ret->gid)
        return 0;
    *ret = (struct submap){0};
    err_set(err, ERR_UNSUPPORTED,
            "/etc/subuid and /etc/subgid have no range of %d ids for this user", SUBMAP_COUNT);
    return subids_add_hint(name ? name : "USER", err);
}
