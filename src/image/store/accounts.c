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

static bool accounts_file_lists(int fd, const struct account *a)
{
    _cleanup_free_ char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > PASSWD_MAX)
        return false;
    text = xmalloc((size_t)st.st_size + 1);
    n = fd_read_full(fd, text, (size_t)st.st_size);
    text[n < 0 ? 0 : n] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
        if (accounts_line_matches(line, a))
            return true;
    return false;
}

/* 1: yes; 0: no; -1: a lower layer decides. */
static int accounts_ask_layer(int fs, const struct account *a)
{
    _cleanup_close_ int etc = accounts_open_below(fs, "etc", O_RDONLY | O_DIRECTORY), passwd = -1;
    struct stat st;

    if (etc < 0)
        return fstatat(fs, "etc", &st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -1;
    passwd = accounts_open_below(etc, "passwd", O_RDONLY);
    if (passwd >= 0)
        return accounts_file_lists(passwd, a);
    if (fstatat(etc, "passwd", &st, AT_SYMLINK_NOFOLLOW) == 0 || whiteout_is_opaque(etc))
        return 0;
    return -1;
}

static bool accounts_ask_layers(const struct images *s, char *const *layers,
                                const struct account *a)
{
    for (size_t i = strv_len(layers); i-- > 0;) {
        _cleanup_free_ char *path = images_layer_path(s, layers[i]);
        _cleanup_close_ int fs = -1;
        int has;

        if (dir_open(s->dir, path, &fs, NULL) < 0)
            return false;
        has = accounts_ask_layer(fs, a);
        if (has >= 0)
            return has;
    }
    return false;
}

bool accounts_have(const struct images *s, const json_t *record, const char *user)
{
    _cleanup_strv_ char **layers = NULL;

    return images_layers(record, &layers, NULL) >= 0 &&
           accounts_ask_layers(s, layers, &(struct account){.name = user});
}

bool accounts_have_uid(const struct images *s, char *const *layers, const char *uid)
{
    return accounts_ask_layers(s, layers, &(struct account){.uid = uid});
}
