#include "lib/base/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

#define TOKEN_NAME "token"

static const char digits[] = "0123456789abcdef";

void token_done(struct api_token *t)
{
    explicit_bzero(t, sizeof(*t));
}

/* Refuses a token file that another user could have written or read. */
static int token_check_file(int fd, const char *state_dir, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "stat '%s/" TOKEN_NAME "'", state_dir);
    if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077))
        return 0;
    err_set(err, ERR_DENIED, "'%s/" TOKEN_NAME "' is not a private file of this user", state_dir);
    return err_hint(err, "Run 'ripcord token --rotate' to create a new token.");
}

static int token_read(int fd, const char *state_dir, struct api_token *ret, struct err *err)
{
    char text[TOKEN_LEN + 3] = "";
    ssize_t n = fd_read_full(fd, text, sizeof(text) - 1);
    int r = 0;

    if (n < 0) {
        r = err_sys(err, (int)-n, "read '%s/" TOKEN_NAME "'", state_dir);
    } else if (n != TOKEN_LEN + 1 || text[TOKEN_LEN] != '\n' || strspn(text, digits) != TOKEN_LEN) {
        err_set(err, ERR_INVALID, "'%s/" TOKEN_NAME "' does not hold a token", state_dir);
        r = err_hint(err, "Run 'ripcord token --rotate' to create a new token.");
    } else {
        memcpy(ret->text, text, TOKEN_LEN);
        ret->text[TOKEN_LEN] = '\0';
    }
    explicit_bzero(text, sizeof(text));
    return r;
}

int token_load(const char *state_dir, struct api_token *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" TOKEN_NAME, state_dir);
    /* O_NONBLOCK: a FIFO in its place must not block us */
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int r;

    if (fd < 0 && errno == ENOENT) {
        err_set(err, ERR_NOT_FOUND, "no API token in '%s'", state_dir);
        return err_hint(err, "Run 'ripcord token' to create it.");
    }
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    r = token_check_file(fd, state_dir, err);
    return r < 0 ? r : token_read(fd, state_dir, ret, err);
}

/* Locks the folder: two processes would write the same temporary file. */
static int token_lock_folder(const char *state_dir, int *ret_fd, struct err *err)
{
    _cleanup_close_ int fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", state_dir);
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return err_sys(err, errno, "lock folder '%s'", state_dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int token_random(struct api_token *ret, struct err *err)
{
    unsigned char random[TOKEN_LEN / 2];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_sys(err, errno, "get random bytes for a token");
    for (size_t i = 0; i < sizeof(random); i++) {
        ret->text[2 * i] = digits[random[i] >> 4];
        ret->text[2 * i + 1] = digits[random[i] & 15];
    }
    ret->text[TOKEN_LEN] = '\0';
    explicit_bzero(random, sizeof(random));
    return 0;
}

static int token_make(const char *state_dir, struct api_token *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" TOKEN_NAME, state_dir);
    _cleanup_token_ struct api_token t = {0};
    char line[TOKEN_LEN + 2];
    int r;

    r = token_random(&t, err);
    if (r < 0)
        return r;
    snprintf(line, sizeof(line), "%s\n", t.text);
    r = file_replace(AT_FDCWD, path, line, TOKEN_LEN + 1, 0600, true, err);
    explicit_bzero(line, sizeof(line));
    if (r < 0)
        return r;
    *ret = t;
    return 0;
}

int token_rotate(const char *state_dir, struct api_token *ret, struct err *err)
{
    _cleanup_close_ int lock = -1;
    int r = token_lock_folder(state_dir, &lock, err);

    return r < 0 ? r : token_make(state_dir, ret, err);
}

int token_ensure(const char *state_dir, struct api_token *ret, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_close_ int lock = -1;
    int r = token_lock_folder(state_dir, &lock, err);

    if (r < 0)
        return r;
    r = token_load(state_dir, ret, &why);
    if (r == -ERR_NOT_FOUND)
        return token_make(state_dir, ret, err);
    return r < 0 ? err_move(err, &why) : 0;
}

bool token_matches(const struct api_token *t, const char *text)
{
    volatile unsigned char differs = 0;

    if (strlen(text) != TOKEN_LEN) /* the length is not secret: all tokens have it */
        return false;
    for (size_t i = 0; i < TOKEN_LEN; i++)
        differs |= (unsigned char)(t->text[i] ^ text[i]);
    return differs == 0;
}

uint64_t token_stamp(const char *state_dir)
{
    _cleanup_free_ char *path = xasprintf("%s/" TOKEN_NAME, state_dir);
    struct stat st;

    if (lstat(path, &st) < 0)
        return 0;
    return (uint64_t)st.st_ino ^ (uint64_t)st.st_ctim.tv_sec << 30 ^ (uint64_t)st.st_ctim.tv_nsec ^
           (uint64_t)st.st_mode << 48;
}
