/*
 * What a sandbox offers out of the box, per tool: docs/out-of-the-box.md. Texts that the default
 * image of Docker and Podman has too are files in images/default; the build turns them into
 * host-texts.h.
 */
#include "daemon/engine/native/host-files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host-texts.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { AGENT_ID = 1000 };

#define COMMANDS "usr/local/bin/" /* in front of /usr/bin in every usual PATH */

/* clang-format off */
static const struct {
    const char *path, *target;
} links[] = {
    {"var/run", "/run"},
    {"var/lock", "/run/lock"},
    {"etc/mtab", "/proc/self/mounts"},
};

static const char profile[] =
    "if [ -n \"$BASH_VERSION\" ] && [ -f \"$HOME/.bashrc\" ]; then . \"$HOME/.bashrc\"; fi\n"
    "PATH=\"$HOME/.local/bin:$PATH\"\n";
static const char bashrc[] =
    "case $- in *i*) ;; *) return ;; esac\n"
    "PS1='\\u@\\h:\\w\\$ '\n"
    "alias ls='ls --color=auto'\n";

/*
 * PAM: `su`, `chfn` and `chpasswd` stop without any configuration. Root may do all; nobody else
 * gains anything from PAM, because no program gains privileges in a sandbox.
 */
static const struct {
    const char *path, *text;
} texts[] = {
    {"etc/gitconfig", HOST_TEXT_GITCONFIG},
    {"etc/group",
     "root:x:0:\ntty:x:5:\nusers:x:100:\nagent:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts",
     "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"},
    {"etc/hostname", "sandbox\n"},
    {"etc/nsswitch.conf",
     "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
     "protocols: files\nservices: files\nethers: files\nrpc: files\n"},
    {"etc/pam.d/other",
     "auth sufficient pam_rootok.so\nauth required pam_deny.so\n"
     "account required pam_permit.so\npassword required pam_unix.so\nsession required pam_permit.so\n"},
    {"etc/resolv.conf", "# no name server: this sandbox has no network\n"},
    {"etc/skel/.bashrc", bashrc},
    {"etc/skel/.profile", profile},
    {"home/agent/.bashrc", bashrc},
    {"home/agent/.config/pnpm/rc", HOST_TEXT_PNPMRC},
    {"home/agent/.npmrc", HOST_TEXT_NPMRC},
    {"home/agent/.profile", profile},
};

static const struct {
    const char *name, *text;
    const char *real; /* only on machines that have this file; NULL: everywhere */
} commands[] = {
    {"apt",     HOST_TEXT_APT,  "usr/bin/apt"},
    {"apt-get", HOST_TEXT_APT,  "usr/bin/apt-get"},
    {"dnf",     HOST_TEXT_APT,  "usr/bin/dnf"},
    {"pacman",  HOST_TEXT_APT,  "usr/bin/pacman"},
    {"yum",     HOST_TEXT_APT,  "usr/bin/yum"},
    {"zypper",  HOST_TEXT_APT,  "usr/bin/zypper"},
    {"sudo",    HOST_TEXT_SUDO, NULL},
};
/* clang-format on */

int host_files_create(int dst, const char *path, mode_t mode, int *ret, struct err *err)
{
    _cleanup_close_ int fd = openat(dst, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    if (fd < 0)
        return err_sys(err, errno, "create '%s'", path);
    if (fchmod(fd, mode) < 0)
        return err_sys(err, errno, "set mode of '%s'", path);
    *ret = TAKE_FD(fd);
    return 0;
}

static int host_files_put_text(int dst, const char *path, mode_t mode, const char *text,
                               struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r = host_files_create(dst, path, mode, &fd, err);

    if (r < 0)
        return r;
    r = fd_write_all(fd, text, strlen(text));
    return r < 0 ? err_sys(err, -r, "write '%s'", path) : 0;
}

static int host_files_put_link(int dst, const char *path, const char *target, struct err *err)
{
    return symlinkat(target, dst, path) < 0 ? err_sys(err, errno, "make link '%s'", path) : 0;
}

static bool host_files_has(int src, const char *path)
{
    return faccessat(src, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int host_files_put_passwd(int src, int dst, struct err *err)
{
    const char *shell = host_files_has(src, "bin/bash") ? "/bin/bash" : "/bin/sh";
    _cleanup_free_ char *text =
        xasprintf("root:x:0:0:root:/root:%s\n"
                  "agent:x:1000:1000:agent:/home/agent:%s\n"
                  "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
                  shell, shell);

    return host_files_put_text(dst, "etc/passwd", 0644, text, err);
}

/* Debian has only python3. A `python` of the machine may be another version: it stays. */
static bool host_files_lacks_python(int src)
{
    return host_files_has(src, "usr/bin/python3") && !host_files_has(src, "usr/bin/python");
}

static int host_files_put_commands(int src, int dst, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        char path[64];
        int r;

        if (commands[i].real && !host_files_has(src, commands[i].real))
            continue;
        snprintf(path, sizeof(path), COMMANDS "%s", commands[i].name);
        r = host_files_put_text(dst, path, 0755, commands[i].text, err);
        if (r < 0)
            return r;
    }
    if (!host_files_lacks_python(src))
        return 0;
    return host_files_put_link(dst, COMMANDS "python", "../../bin/python3", err);
}

uint64_t host_files_machine(int src)
{
    uint64_t found = host_files_lacks_python(src);

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        found = found << 1 | (commands[i].real && host_files_has(src, commands[i].real));
    return found;
}

static int host_files_chown_home(int dst, struct err *err)
{
    static const char *const paths[] = {"home/agent",
                                        "home/agent/.bashrc",
                                        "home/agent/.config",
                                        "home/agent/.config/pnpm",
                                        "home/agent/.config/pnpm/rc",
                                        "home/agent/.npmrc",
                                        "home/agent/.profile"};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        if (fchownat(dst, paths[i], AGENT_ID, AGENT_ID, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, errno, "make the agent the owner of '%s'", paths[i]);
    return 0;
}

int host_files_put(int src, int dst, bool chown_home, struct err *err)
{
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        r = host_files_put_link(dst, links[i].path, links[i].target, err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        r = host_files_put_text(dst, texts[i].path, 0644, texts[i].text, err);
        if (r < 0)
            return r;
    }
    r = host_files_put_passwd(src, dst, err);
    if (r < 0)
        return r;
    r = host_files_put_commands(src, dst, err);
    if (r < 0)
        return r;
    return chown_home ? host_files_chown_home(dst, err) : 0;
}
