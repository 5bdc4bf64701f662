#include "lib/os/user.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "lib/os/caps.h"

enum { USER_FILE_MAX = 1 << 20 };

/* NULL if the file does not exist, is not a regular file or is too large. */
static char *user_read_file(const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
    _cleanup_free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (root < 0)
        return NULL;
    fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > USER_FILE_MAX)
        return NULL;
    text = xmalloc((size_t)st.st_size + 1);
    n = fd_read_full(fd, text, (size_t)st.st_size);
    if (n < 0)
        return NULL;
    text[n] = '\0';
    return TAKE_PTR(text);
}

static bool user_take_id(const char *s, uint32_t *ret)
{
    if (!s)
        return false;
    if (GUARD("strict ids"))
        return parse_u32(s, 0, USER_ID_MAX, ret, NULL) >= 0;
    *ret = (uint32_t)strtoull(s, NULL, 10);
    return true;
}

/* name:password:uid:gid:gecos:home:shell */
bool user_from_passwd(char *text, const char *name, uint32_t uid, struct user *ret)
{
    char *line;

    while ((line = strsep(&text, "\n"))) {
        char *f[7] = {NULL};
        uint32_t entry_uid, entry_gid;

        for (size_t i = 0; i < ARRAY_SIZE(f); i++)
            f[i] = strsep(&line, ":");
        if (!f[6] || line || !user_take_id(f[2], &entry_uid) || !user_take_id(f[3], &entry_gid))
            continue;
        if (name ? !STREQ(f[0], name) : entry_uid != uid)
            continue;
        ret->uid = entry_uid;
        ret->gid = entry_gid;
        snprintf(ret->name, sizeof(ret->name), "%s", f[0]);
        snprintf(ret->home, sizeof(ret->home), "%s", f[5][0] == '/' ? f[5] : "/");
        return true;
    }
    return false;
}

static bool user_listed(char *members, const char *name)
{
    char *m;

    while ((m = strsep(&members, ",")))
        if (STREQ(m, name))
            return true;
    return false;
}

/* name:password:gid:member,member */
void user_groups_from(char *text, struct user *u)
{
    char *line;

    while ((line = strsep(&text, "\n")) && u->n_groups < USER_GROUPS_MAX) {
        char *f[4] = {NULL};
        uint32_t gid;

        for (size_t i = 0; i < ARRAY_SIZE(f); i++)
            f[i] = strsep(&line, ":");
        if (!f[3] || line || !user_take_id(f[2], &gid) || gid == u->gid ||
            !user_listed(f[3], u->name))
            continue;
        u->groups[u->n_groups++] = gid;
    }
}

static int user_resolve_name(const char *name, char *passwd, struct user *u, struct err *err)
{
    if (passwd && user_from_passwd(passwd, name, 0, u))
        return 0;
    err_set(err, ERR_INVALID, "user '%s' is not in the sandbox's /etc/passwd", name);
    return err_hint(err, "Give a number (`--user 1000`) or a name from the sandbox's /etc/passwd.");
}

/* A uid that is not in passwd gets the group of the same number, never 0 by default. */
static int user_resolve_ids(const char *who, char *passwd, struct user *u, struct err *err)
{
    char number[16];
    size_t n = strcspn(who, ":");
    uint32_t uid, gid;

    snprintf(number, sizeof(number), "%.*s", (int)MIN(n, sizeof(number) - 1), who);
    if (n >= sizeof(number) || !user_take_id(number, &uid) ||
        (who[n] && !user_take_id(who + n + 1, &gid)))
        return err_set(err, ERR_INVALID, "user '%s' must be UID or UID:GID, each at most %d", who,
                       USER_ID_MAX);
    u->uid = u->gid = uid;
    snprintf(u->home, sizeof(u->home), "/");
    if (passwd)
        user_from_passwd(passwd, NULL, uid, u);
    if (who[n])
        u->gid = gid;
    return 0;
}

int user_resolve(const char *who, struct user *ret, struct err *err)
{
    _cleanup_free_ char *passwd = NULL, *group = NULL;
    bool number = *who >= '0' && *who <= '9';
    int r;

    *ret = (struct user){0};
    r = GUARD("strict users") ? parse_user(who, err) : 0;
    if (r < 0)
        return r;
    passwd = user_read_file("etc/passwd");
    r = number ? user_resolve_ids(who, passwd, ret, err) : user_resolve_name(who, passwd, ret, err);
    if (r < 0)
        return r;
    group = *ret->name ? user_read_file("etc/group") : NULL;
    if (group)
        user_groups_from(group, ret);
    return 0;
}

int user_resolve_owner(const char *who, struct user *ret, struct err *err)
{
    int r = user_resolve(who, ret, err);

    if (r < 0)
        return r;
    if (ret->uid == geteuid() || caps_have(CAP_CHOWN))
        return 0;
    err_set(err, ERR_DENIED, "files of user %u cannot be given to '%s'", geteuid(), who);
    if (geteuid() == 0)
        return err_hint(err, "Root has no capabilities on this engine. Copy as that user instead.");
    return err_hint(err, "Copy as root, or as that user.");
}
