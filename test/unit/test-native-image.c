/* The parts of the native engine that need no sandbox: image `host`, id leases, mount sources. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "daemon/engine/mounts.h"
#include "daemon/engine/native/host-image.h"
#include "daemon/engine/native/ids.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/native/probe.h"
#include "daemon/engine/native/subids.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

static char dir[64];

static const char *at(const char *name)
{
    static char path[8][256];
    static unsigned i;

    i = (i + 1) % 8;
    snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
    return path[i];
}

static void put(const char *name, const char *text, mode_t mode)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0)
        abort();
    close(fd);
}

/* A small machine in dir/host. */
static void setup(void)
{
    static const char *const folders[] = {"host/etc/ssl/certs", "host/etc/alternatives",
                                          "host/etc/python3.11", "host/usr/bin",
                                          "host/etc/ssl/private"};

    snprintf(dir, sizeof(dir), "/tmp/ripcord-image-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
        if (dir_make_all(AT_FDCWD, at(folders[i]), 0755, NULL) < 0)
            abort();
    put("host/etc/ssl/certs/ca.pem", "certificate", 0644);
    put("host/etc/ssl/private/key.pem", "key", 0644);
    put("host/etc/ssl/certs/secret.pem", "secret", 0600);
    put("host/etc/shadow", "root:hash", 0644);
    put("host/etc/gitconfig", "token", 0644);
    put("host/etc/npmrc", "token", 0644);
    put("host/etc/pip.conf", "token", 0644);
    put("host/etc/python3.11/sitecustomize.py", "x", 0644);
    put("host/etc/passwd", "somebody:x:77:", 0644);
    if (symlink("usr/bin", at("host/bin")) < 0 ||
        symlink("/usr/bin/vim", at("host/etc/alternatives/editor")) < 0)
        abort();
}

static void teardown(void)
{
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    rmtree(tmp, strrchr(dir, '/') + 1, NULL);
    close(tmp);
}

static int ensure(char **ret)
{
    struct host_image_source src = {.root = at("host")};
    _cleanup_err_ struct err err = ERR_INIT;
    int r = host_image_ensure(at("images"), &src, ret, &err);

    if (r < 0)
        printf("# %s\n", err.msg);
    return r;
}

static bool has(const char *image, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", image, name);
    struct stat st;

    return lstat(path, &st) == 0;
}

TEST(the_image_holds_only_allowed_files)
{
    _cleanup_free_ char *image = NULL, *gitconfig = NULL, *passwd = NULL, *path = NULL;
    char target[64] = "";

    setup();
    CHECK(ensure(&image) >= 0);
    CHECK(has(image, "bin") && has(image, "etc/ssl/certs/ca.pem") && has(image, "usr"));
    CHECK(has(image, "etc/python3.11/sitecustomize.py") && has(image, "home/agent/.profile"));
    CHECK(!has(image, "sbin") && !has(image, "usr/bin"));
    CHECK(!has(image, "etc/shadow") && has(image, "etc/gitconfig"));
    path = xasprintf("%s/etc/gitconfig", image);
    CHECK(file_read(AT_FDCWD, path, 4096, &gitconfig, NULL, NULL) >= 0);
    CHECK(strstr(gitconfig, "agent@") && !strstr(gitconfig, "token"));
    free(path);
    CHECK(!has(image, "etc/npmrc") && !has(image, "etc/pip.conf"));
    CHECK(!has(image, "etc/ssl/private") && !has(image, "etc/ssl/certs/secret.pem"));
    path = xasprintf("%s/etc/alternatives/editor", image);
    CHECK(readlink(path, target, sizeof(target) - 1) > 0);
    CHECK_STR(target, "/usr/bin/vim");
    free(path);
    path = xasprintf("%s/etc/passwd", image);
    CHECK(file_read(AT_FDCWD, path, 4096, &passwd, NULL, NULL) >= 0);
    CHECK(strstr(passwd, "agent:x:1000:1000:agent:/home/agent:/bin/sh\n"));
    CHECK(!strstr(passwd, "somebody"));
    teardown();
}

TEST(a_machine_with_split_usr_keeps_its_folders)
{
    _cleanup_free_ char *merged = NULL, *split = NULL, *path = NULL, *passwd = NULL;
    char target[64] = "";
    struct stat st;

    setup();
    CHECK(ensure(&merged) >= 0);
    path = xasprintf("%s/bin", merged);
    CHECK(readlink(path, target, sizeof(target) - 1) > 0);
    CHECK_STR(target, "usr/bin");
    free(path);
    CHECK(unlink(at("host/bin")) == 0 && mkdir(at("host/bin"), 0755) == 0);
    put("host/bin/bash", "x", 0755);
    CHECK(ensure(&split) >= 0 && strcmp(merged, split) != 0);
    path = xasprintf("%s/bin", split);
    CHECK(lstat(path, &st) == 0 && S_ISDIR(st.st_mode));
    CHECK(!has(split, "bin/bash")); /* the shim mounts the machine's folder there */
    free(path);
    path = xasprintf("%s/etc/passwd", split);
    CHECK(file_read(AT_FDCWD, path, 4096, &passwd, NULL, NULL) >= 0);
    CHECK(strstr(passwd, "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"));
    teardown();
}

TEST(commands_fill_gaps_of_the_machine)
{
    _cleanup_free_ char *a = NULL, *b = NULL, *path = NULL;
    char target[64] = "";

    setup();
    CHECK(ensure(&a) >= 0);
    CHECK(has(a, "usr/local/bin/sudo") && !has(a, "usr/local/bin/apt"));
    CHECK(!has(a, "usr/local/bin/python"));
    put("host/usr/bin/python3", "x", 0755);
    put("host/usr/bin/apt", "x", 0755);
    CHECK(ensure(&b) >= 0 && strcmp(a, b) != 0);
    CHECK(has(b, "usr/local/bin/apt") && !has(b, "usr/local/bin/dnf"));
    path = xasprintf("%s/usr/local/bin/python", b);
    CHECK(readlink(path, target, sizeof(target) - 1) > 0);
    CHECK_STR(target, "../../bin/python3");
    put("host/usr/bin/python", "x", 0755);
    free(a);
    CHECK(ensure(&a) >= 0 && !has(a, "usr/local/bin/python"));
    teardown();
}

TEST(modes_do_not_depend_on_the_umask)
{
    _cleanup_free_ char *image = NULL, *path = NULL;
    struct stat st;
    mode_t old;

    setup();
    old = umask(077);
    CHECK(ensure(&image) >= 0);
    umask(old);
    path = xasprintf("%s/etc/ssl/certs/ca.pem", image);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0644);
    free(path);
    path = xasprintf("%s/var/tmp", image);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 07777) == 01777);
    free(path);
    path = xasprintf("%s/etc/ssl", image);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0755);
    teardown();
}

TEST(a_generation_is_reused_until_the_machine_changes)
{
    _cleanup_free_ char *a = NULL, *b = NULL, *c = NULL;
    _cleanup_strv_ char **keep = NULL;
    struct stat before, after;

    setup();
    CHECK(ensure(&a) >= 0 && stat(a, &before) == 0);
    CHECK(ensure(&b) >= 0 && stat(b, &after) == 0);
    CHECK_STR(a, b);
    CHECK(before.st_ino == after.st_ino);
    put("host/etc/ssl/certs/new.pem", "another", 0644);
    CHECK(ensure(&c) >= 0);
    CHECK(strcmp(a, c) != 0 && has(c, "etc/ssl/certs/new.pem"));
    CHECK(!has(a, "etc/ssl/certs/new.pem"));
    strv_add(&keep, c);
    host_image_prune(at("images"), keep);
    CHECK(!has(a, "etc") && has(c, "etc"));
    teardown();
}

TEST(a_half_built_image_is_built_again)
{
    _cleanup_free_ char *image = NULL, *tmp = NULL;

    setup();
    CHECK(ensure(&image) >= 0);
    tmp = xasprintf("%s/tmp-%s", at("images"), strrchr(image, '/') + 1);
    CHECK(rename(image, tmp) == 0);
    free(image);
    image = NULL;
    CHECK(ensure(&image) >= 0 && has(image, "etc/passwd"));
    CHECK(access(tmp, F_OK) < 0);
    teardown();
}

TEST(this_machine_makes_an_image)
{
    struct host_image_source src = {.root = "/"};
    _cleanup_free_ char *image = NULL;

    setup();
    CHECK(host_image_ensure(at("real"), &src, &image, NULL) >= 0);
    CHECK(has(image, "etc/passwd") && has(image, "bin") && !has(image, "etc/shadow"));
    teardown();
}

/* ---- ids ---- */

static const char *const no_files[] = {NULL};

TEST(no_two_leases_are_the_same)
{
    uint32_t a, b, c;
    struct ids x, y;
    int fa, fb, fc;

    setup();
    CHECK(ids_init(&x, at("ids"), no_files, NULL) >= 0);
    CHECK(ids_init(&y, at("ids"), no_files, NULL) >= 0);
    y.next = x.next;
    CHECK(ids_lease(&x, &a, &fa, NULL) >= 0 && ids_lease(&y, &b, &fb, NULL) >= 0);
    CHECK(a != b && a >= IDS_FIRST && a % IDS_COUNT == 0);
    close(fa);
    x.next = (a - IDS_FIRST) / IDS_COUNT;
    CHECK(ids_lease(&x, &c, &fc, NULL) >= 0 && c == a); /* given back by its last holder */
    close(fb);
    close(fc);
    ids_done(&x);
    ids_done(&y);
    teardown();
}

TEST(a_lease_lives_as_long_as_a_process_that_inherited_it)
{
    uint32_t a, b;
    struct ids x;
    int fd, fb, hold[2];
    pid_t pid;

    setup();
    CHECK(ids_init(&x, at("ids"), no_files, NULL) >= 0);
    CHECK(ids_lease(&x, &a, &fd, NULL) >= 0 && pipe(hold) == 0);
    pid = fork();
    if (pid == 0) {
        char c;

        close(hold[1]);
        _exit(read(hold[0], &c, 1) < 0);
    }
    close(hold[0]);
    close(fd);
    x.next = (a - IDS_FIRST) / IDS_COUNT;
    CHECK(ids_lease(&x, &b, &fb, NULL) >= 0 && b != a);
    close(fb);
    close(hold[1]);
    CHECK(waitpid(pid, NULL, 0) == pid);
    x.next = (a - IDS_FIRST) / IDS_COUNT;
    CHECK(ids_lease(&x, &b, &fb, NULL) >= 0 && b == a);
    close(fb);
    ids_done(&x);
    teardown();
}

static int make_read_only(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0 ||
        mount(dir, dir, NULL, MS_BIND, NULL) < 0)
        return -1;
    return mount(NULL, dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL);
}

/* In a unit with ProtectSystem=strict, beside a daemon that may write. */
static int lease_for_reading(void)
{
    uint32_t held, a, b, c;
    struct ids w, x, y;
    int fw, fa, fb, fc;

    if (ids_init(&w, at("ids"), no_files, NULL) < 0 || make_read_only() < 0 ||
        ids_init(&x, at("ids"), no_files, NULL) < 0 || ids_init(&y, at("ids"), no_files, NULL) < 0)
        return 1;
    if (ids_lease(&x, &a, &fa, NULL) >= 0) /* nobody has made the file */
        return 2;
    w.next = x.next = y.next = 7;
    if (ids_lease(&w, &held, &fw, NULL) < 0 || ids_lease(&x, &a, &fa, NULL) < 0 ||
        ids_lease(&y, &b, &fb, NULL) < 0 || ids_lease(&w, &c, &fc, NULL) < 0)
        return 3;
    if (a != held + IDS_COUNT || b != a + IDS_COUNT || c != b + IDS_COUNT)
        return 4;
    close(fa);
    y.next = 7;
    return ids_lease(&y, &c, &fc, NULL) >= 0 && c == a ? 0 : 5;
}

TEST(leases_for_reading_exclude_all_others)
{
    int status;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("only root may mount");
    setup();
    pid = fork();
    if (pid == 0)
        _exit(lease_for_reading());
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    teardown();
}

TEST(ranges_of_subuid_are_left_alone)
{
    const char *files[2] = {NULL, NULL};
    struct ids x;
    uint32_t a;
    int fd;

    setup();
    put("subuid", "me:100000:65536\nbroken\nyou:1879048192:65537\n", 0644); /* 0x70000000 */
    files[0] = at("subuid");
    CHECK(ids_init(&x, at("ids"), files, NULL) >= 0);
    x.next = 0;
    CHECK(ids_lease(&x, &a, &fd, NULL) >= 0 && a == IDS_FIRST + 2 * IDS_COUNT);
    close(fd);
    ids_done(&x);
    teardown();
}

TEST(a_lease_file_of_others_is_refused)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct ids x;
    uint32_t a;
    int fd;

    setup();
    put("ids", "", 0666);
    CHECK(ids_init(&x, at("ids"), no_files, NULL) >= 0);
    CHECK(ids_lease(&x, &a, &fd, &err) == -ERR_DENIED);
    ids_done(&x);
    teardown();
}

/* ---- mounts ---- */

static int check_source(const char *path)
{
    const char *const own[] = {at("state"), NULL};
    _cleanup_err_ struct err err = ERR_INIT;
    struct mount_source src = {0};
    int r = mount_source_check(path, own, &src, &err);

    return r >= 0 && src.ino == 0 ? -1 : r;
}

struct source {
    const char *path;
    int want;
};

static void make_sources(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setup();
    if (dir_make_all(AT_FDCWD, at("work/project"), 0755, NULL) < 0 ||
        dir_make_all(AT_FDCWD, at("work/alias"), 0755, NULL) < 0 ||
        dir_make_all(AT_FDCWD, at("state/sandboxes"), 0755, NULL) < 0 ||
        symlink("/etc", at("work/link")) < 0)
        abort();
    put("work/file", "x", 0644);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", at("work/sock"));
    if (bind(s, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        abort();
    close(s);
}

/* A leading '=' stands for our own folder. */
static int wrong_answers(const struct source *sources, size_t n)
{
    int wrong = 0;

    for (size_t i = 0; i < n; i++) {
        const char *path = sources[i].path;
        int r = check_source(path[0] != '=' ? path : path[1] ? at(path + 1) : dir);

        if (r != sources[i].want)
            printf("# mount source '%s': %d\n", path, r);
        wrong += r != sources[i].want;
    }
    return wrong;
}

TEST(mount_sources)
{
    static const struct source sources[] = {
        {"=work/project", 0},
        {"=work/file", 0},
        {"=work/none", -ERR_NOT_FOUND},
        {"=work/link", -ERR_INVALID},
        {"=work/link/ssl", -ERR_INVALID},
        {"=work/sock", -ERR_DENIED},
        {"=work/../work", -ERR_INVALID},
        {"work", -ERR_INVALID},
        {"=state", -ERR_DENIED},
        {"=state/sandboxes", -ERR_DENIED},
        {"=", -ERR_DENIED}, /* holds our state */
        {"/", -ERR_DENIED},
        {"/etc", -ERR_DENIED},
        {"/etc/ssl", -ERR_DENIED},
        {"/proc/self", -ERR_DENIED},
        {"/var", -ERR_DENIED},
        {"/dev/null", -ERR_DENIED},
        {"/run/docker.sock", -ERR_DENIED},
    };
    int wrong;

    make_sources();
    wrong = wrong_answers(sources, ARRAY_SIZE(sources));
    teardown();
    CHECK(wrong == 0);
}

/* In a mount namespace of its own: its mounts do not reach the machine. */
static int look_at_alias(void)
{
    static const struct source sources[] = {{"=work/alias", -ERR_DENIED},
                                            {"=work/alias/sandboxes", -ERR_DENIED}};

    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(at("state"), at("work/alias"), NULL, MS_BIND, NULL) < 0)
        return 77;
    return wrong_answers(sources, ARRAY_SIZE(sources));
}

TEST(mount_sources_under_another_name)
{
    int status = -1;
    pid_t pid;

    if (geteuid() != 0)
        SKIP("needs root to mount");
    make_sources();
    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(look_at_alias());
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    teardown();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- small ones ---- */

TEST(id_maps)
{
    CHECK(probe_map_covers("         0          0 4294967295\n", 0x70000000, 65536));
    CHECK(!probe_map_covers("         0       1000          1\n", 0x70000000, 65536));
    CHECK(!probe_map_covers("0 100000 65536\n70000 0 5\n", 65000, 1000));
    CHECK(!probe_map_covers("", 0, 1));
}

static uint32_t first_of(const char *text, const char *name)
{
    _cleanup_free_ char *copy = xstrdup(text);

    return subids_parse(copy, name, 1001);
}

TEST(subordinate_ids)
{
    CHECK(first_of("alice:100000:65536\nbob:165536:65536\n", "bob") == 165536);
    CHECK(first_of("1001:300000:65535", NULL) == 300000);
    CHECK(first_of("bob:100000:1000\nbob:200000:65536\n", "bob") == 200000); /* enough of them */
    CHECK(first_of("bobby:100000:65536\n", "bob") == 0);
    CHECK(first_of("bob:0:65536\nbob:4294967295:65536\nbob:-1:65536\nbob:1\n\n", "bob") == 0);
    CHECK(first_of("", "bob") == 0);
}

/* As a process that runs from it would: through /proc, and with the owner's rights. */
static bool can_be_written(int fd)
{
    char path[32];
    int again, n;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = fchmod(fd, 0700) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    n = again >= 0 && (write(again, "x", 1) == 1 || ftruncate(again, 0) == 0);
    fd_close(again);
    return n;
}

TEST(the_sealed_shim_cannot_be_written)
{
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *text = NULL;
    bool written;
    int r, none = -1, missing;

    setup();
    put("shim", "#!/bin/true\n", 0755);
    r = native_seal_shim(at("shim"), &fd, NULL);
    missing = native_seal_shim(at("none"), &none, NULL);
    written = can_be_written(fd);
    file_read(AT_FDCWD, at("shim"), 64, &text, NULL, NULL);
    teardown();
    CHECK_STR(text, "#!/bin/true\n");
    CHECK(r >= 0 && !written && fd >= 16);
    CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) < 0);
    CHECK(missing == -ERR_SYSTEM);
}
