#include "cli/ssh-keys.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/secrets.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

extern char **environ;

enum { SSH_KEY_MAX = 4096 };

static int ssh_keys_generate(const char *path, const char *comment, struct err *err)
{
    char *const argv[] = {"ssh-keygen",    "-q", "-t",         "ed25519", "-N", "", "-C",
                          (char *)comment, "-f", (char *)path, NULL};
    posix_spawn_file_actions_t fa;
    int r, status = 0;
    pid_t pid;

    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&fa, STDERR_FILENO, STDOUT_FILENO);
    r = posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    if (r == ENOENT) {
        err_set(err, ERR_UNSUPPORTED, "ssh-keygen: not found");
        return err_hint(err, "Install openssh-client.");
    }
    if (r)
        return err_sys(err, r, "run ssh-keygen");
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status ? err_set(err, ERR_SYSTEM, "ssh-keygen cannot make '%s'", path) : 0;
}

/* Every host name leads through our own proxy, so one key stands for all sandboxes. */
static int ssh_keys_write_known(const char *dir, struct err *err)
{
    _cleanup_free_ char *pub = xasprintf("%s/host.pub", dir), *key = NULL, *line = NULL;
    _cleanup_close_ int fd = -1;
    size_t len;
    int r = input_read(pub, SSH_KEY_MAX, &key, &len, err);

    if (r < 0)
        return r;
    line = xasprintf("* %s", key);
    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", dir);
    return file_replace(fd, "known_hosts", line, strlen(line), 0600, false, err);
}

static int ssh_keys_fill(const char *dir, struct err *err)
{
    _cleanup_free_ char *client = xasprintf("%s/client", dir), *host = xasprintf("%s/host", dir);
    int r = ssh_keys_generate(client, "ripcord", err);

    if (r < 0)
        return r;
    r = ssh_keys_generate(host, "ripcord sandboxes", err);
    return r < 0 ? r : ssh_keys_write_known(dir, err);
}

static void ssh_keys_remove(const char *dir)
{
    static const char *const names[] = {"client", "client.pub", "host", "host.pub", "known_hosts"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", dir, names[i]);

        unlink(path);
    }
    rmdir(dir);
}

/* The keys are made in a folder of their own and appear at once, so that two first calls agree. */
int ssh_keys_make(const char *state, char **ret, struct err *err)
{
    _cleanup_free_ char *dir = xasprintf("%s/ssh", state);
    _cleanup_free_ char *fresh = xasprintf("%s/ssh.XXXXXX", state);
    int r;

    if (access(dir, F_OK) < 0) {
        if (!mkdtemp(fresh))
            return err_sys(err, errno, "make a folder in '%s'", state);
        r = ssh_keys_fill(fresh, err);
        if (r >= 0 && rename(fresh, dir) == 0)
            fresh[0] = '\0';
        if (*fresh)
            ssh_keys_remove(fresh); /* also when another call was faster */
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(dir);
    return 0;
}
