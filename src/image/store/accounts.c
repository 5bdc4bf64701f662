#include "image/store/accounts.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/whiteout.h"

enum { PASSWD_MAX = 1 << 20 };

static int accounts_open_below(int dir, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                      RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* The account to find: by its name, or by its number if the name is NULL. */
struct account {
    const char *name;
    const char *uid;
};

static bool accounts_line_matches(char *line, const struct account *a)
{
    const char *name = strsep(&line, ":"), *uid;

    if (a->name)
        return line && STREQ(name, a->name);
    (void)strsep(&line, ":");
    uid = strsep(&line, ":");
    return uid && STREQ(uid, a->uid);
}

/* Beside the values of enum account_found: a lower layer decides. */
enum { ACCOUNT_BELOW = -1 };

static int accounts_file_lists(int fd, const struct account *a)
{
    _cleanup_free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > PASSWD_MAX)
        return ACCOUNT_UNKNOWN;
    text = xmalloc((size_t)st.st_size + 1);
    n = fd_read_full(fd, text, (size_t)st.st_size);
    if (n < 0)
        return ACCOUNT_UNKNOWN;
    text[n] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (accounts_line_matches(line, a))
            return ACCOUNT_PRESENT;
    return ACCOUNT_MISSING;
}

/* A link leads somewhere else; anything else that is not readable is a whiteout. */
static int accounts_unread(const struct stat *st)
{
    return S_ISLNK(st->st_mode) ? ACCOUNT_UNKNOWN : ACCOUNT_MISSING;
}

static int accounts_ask_layer(int fs, const struct account *a)
{
    _cleanup_close_ int etc = accounts_open_below(fs, "etc", O_RDONLY | O_DIRECTORY), passwd = -1;
    struct stat st;

    if (etc < 0)
        return fstatat(fs, "etc", &st, AT_SYMLINK_NOFOLLOW) < 0 ? ACCOUNT_BELOW
                                                                : accounts_unread(&st);
    passwd = accounts_open_below(etc, "passwd", O_RDONLY);
    if (passwd >= 0)
        return accounts_file_lists(passwd, a);
    if (fstatat(etc, "passwd", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return accounts_unread(&st);
    return whiteout_is_opaque(etc) ? ACCOUNT_MISSING : ACCOUNT_BELOW;
}

static enum account_found accounts_ask_layers(const struct images *s, char *const *layers,
                                              const struct account *a)
{
    for (size_t i = strv_len(layers); i-- > 0;) {
        _cleanup_free_ char *path = images_layer_path(s, layers[i]);
        _cleanup_close_ int fs = -1;
        int found;

        if (dir_open(s->dir, path, &fs, NULL) < 0)
            return ACCOUNT_UNKNOWN;
        found = accounts_ask_layer(fs, a);
        if (found != ACCOUNT_BELOW)
            return (enum account_found)found;
    }
    return ACCOUNT_MISSING;
}

enum account_found accounts_find(const struct images *s, const json_t *record, const char *user)
{
    _cleanup_strv_ char **layers = NULL;

    if (images_layers(record, &layers, NULL) < 0)
        return ACCOUNT_UNKNOWN;
    return accounts_ask_layers(s, layers, &(struct account){.name = user});
}

enum account_found accounts_find_in(int root, const char *user)
{
    int found = accounts_ask_layer(root, &(struct account){.name = user});

    return found == ACCOUNT_BELOW ? ACCOUNT_MISSING : (enum account_found)found;
}

bool accounts_have(const struct images *s, const json_t *record, const char *user)
{
    return accounts_find(s, record, user) == ACCOUNT_PRESENT;
}

bool accounts_have_uid(const struct images *s, char *const *layers, const char *uid)
{
    return accounts_ask_layers(s, layers, &(struct account){.uid = uid}) == ACCOUNT_PRESENT;
}
