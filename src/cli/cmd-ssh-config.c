/*
 * ripcord ssh-config: makes ssh, scp, sftp, rsync and editors work in a sandbox. ssh runs this
 * program as its ProxyCommand, which runs the sshd of the sandbox's image as a command of the
 * sandbox's user: docs/decisions/040-ssh.md.
 */
#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/execute.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/secrets.h"
#include "cli/ssh-keys.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { KEY_MAX = 4096, QUOTED_MAX = 16 << 10 };

/*
 * sshd gives its sessions a new environment, without the sandbox's own (package cache, PATH): it is
 * passed on with SetEnv. A value that its syntax cannot hold is left out.
 */
static const char server_script[] =
    "sshd=$(command -v sshd || echo /usr/sbin/sshd)\n"
    "if ! [ -x \"$sshd\" ]; then\n"
    "    echo \"ripcord: sandbox '$1': no ssh server inside (sshd was not found)\" >&2\n"
    "    echo \"hint: Install openssh-server in its image; for image 'host', on this machine.\" "
    ">&2\n"
    "    exit 127\n"
    "fi\n"
    "vars=$(awk 'BEGIN {\n"
    "    for (k in ENVIRON)\n"
    "        if (k !~ /^(HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|SHLVL|_|MAIL|TERM|RIPCORD_SECRETS)$/ "
    "&&\n"
    "            k ~ /^[A-Za-z_][A-Za-z0-9_]*$/ && ENVIRON[k] !~ /[\"\\\\\\n]/)\n"
    "            printf \"\\\"%s=%s\\\" \", k, ENVIRON[k] }')\n"
    "exec \"$sshd\" -i -e -q -f /dev/null -h \"$RIPCORD_SECRETS/ssh_host\" -o UsePAM=no \\\n"
    "    -o StrictModes=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \\\n"
    "    -o AuthorizedKeysFile=\"$RIPCORD_SECRETS/ssh_client\" -o PidFile=none -o PrintMotd=no \\\n"
    "    -o PrintLastLog=no -o 'Subsystem=sftp internal-sftp' ${vars:+-o \"SetEnv=$vars\"}\n";

static int keys_of(struct cli *cli, char **ret, struct err *err)
{
    struct client *c;
    int r;

    if ((r = cli_client(cli, &c, err)) < 0 || (r = path_roots_make(&c->paths, err)) < 0)
        return r;
    return ssh_keys_make(c->paths.state, ret, err);
}

/* ---- the proxy ---- */

static int add_key(json_t *secrets, const char *name, const char *dir, const char *file,
                   struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", dir, file), *key = NULL;
    size_t len;
    int r = input_read(path, KEY_MAX, &key, &len, err);

    if (r < 0)
        return r;
    json_object_set_new(secrets, name, json_string(key));
    explicit_bzero(key, len);
    return 0;
}

/* Runs the server with our stdin and stdout as its connection, until ssh closes them. */
static int proxy(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const struct cli_option input = {.name = "interactive"};
    struct cli_value value = {.option = &input};
    const struct cli_args with_input = {.values = &value, .n_values = 1};
    char *const argv[] = {"/bin/sh", "-c", (char *)server_script, "sshd", args->words[0], NULL};
    _cleanup_free_ char *keys = NULL, *target = NULL;
    _cleanup_json_ json_t *spec = NULL;
    json_t *secrets = json_object();
    int r = execute_spec(&with_input, argv, &spec, err);

    json_object_set_new(spec, "secrets", secrets);
    json_object_set_new(spec, "on_disconnect", json_string("kill"));
    if (r < 0 || (r = keys_of(cli, &keys, err)) < 0 ||
        (r = add_key(secrets, "ssh_host", keys, "host", err)) < 0 ||
        (r = add_key(secrets, "ssh_client", keys, "client.pub", err)) < 0)
        return r;
    target = xasprintf("/v1/sandboxes/%s/execs", args->words[0]);
    return execute(cli, &with_input, target, spec, EXECUTE_EXEC, err);
}

/* ---- the block ---- */

/* As one word of ssh_config's ProxyCommand, which a shell runs after ssh has replaced each '%'. */
static void quote(struct buf *b, const char *word)
{
    (void)!buf_append_c(b, '\'');
    for (const char *p = word; *p; p++) {
        const char one[] = {*p, '\0'};

        (void)!buf_append_str(b, *p == '\'' ? "'\\''" : *p == '%' ? "%%" : one);
    }
    (void)!buf_append_str(b, "' ");
}

static int proxy_command(struct cli *cli, const char *name, char **ret, struct err *err)
{
    const struct client *c = &cli->client;
    struct buf b = BUF_INIT(QUOTED_MAX);
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n < 0)
        return err_sys(err, errno, "find the path of this program");
    self[n] = '\0';
    quote(&b, self);
    if (c->remote || c->paths.root) {
        quote(&b, c->remote ? "--host" : "--root");
        quote(&b, c->remote ? c->host : c->paths.root);
    }
    (void)!buf_append_str(&b, "ssh-config --proxy ");
    (void)!buf_append_str(&b, name);
    *ret = buf_steal(&b);
    return 0;
}

/* sshd without root's rights serves only the user that it runs as, and looks it up by its name. */
static int check_user(const char *name, const char *user, struct err *err)
{
    if (user && !isdigit((unsigned char)*user) && !STREQ(user, "root"))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "sandbox '%s': ssh is not available for its user '%s'", name,
            user ? user : "?");
    return err_hint(err, "Use 'ripcord up %s --user agent' or another name of an ordinary user.",
                    name);
}

static void print_block(const char *name, const char *user, const char *keys, const char *command)
{
    printf("Host %s.ripcord\n"
           "    User %s\n"
           "    ProxyCommand %s\n"
           "    IdentityFile \"%s/client\"\n"
           "    IdentitiesOnly yes\n"
           "    UserKnownHostsFile \"%s/known_hosts\"\n"
           "    GlobalKnownHostsFile /dev/null\n"
           "    StrictHostKeyChecking yes\n",
           name, user, command, keys, keys);
}

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *name = args->words[0], *user;
    _cleanup_free_ char *target = NULL, *keys = NULL, *command = NULL;
    _cleanup_json_ json_t *doc = NULL, *shown = NULL;
    int r = parse_name("sandbox name", name, err);

    if (r < 0)
        return r;
    if (args_has(args, "proxy"))
        return proxy(cli, args, err);
    target = xasprintf("/v1/sandboxes/%s", name);
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    user = json_text_of(json_object_get(json_object_get(doc, "sandbox"), "spec"), "user");
    if ((r = check_user(name, user, err)) < 0 || (r = keys_of(cli, &keys, err)) < 0 ||
        (r = proxy_command(cli, name, &command, err)) < 0)
        return r;
    if (!cli->json) {
        print_block(name, user, keys, command);
        return 0;
    }
    shown = json_pack("{s:s+, s:s, s:s, s:s+, s:s+}", "host", name, ".ripcord", "user", user,
                      "proxy_command", command, "identity_file", keys, "/client",
                      "known_hosts_file", keys, "/known_hosts");
    output_json(shown);
    return 0;
}

static const struct cli_option options[] = {
    {"proxy", 0, NULL, "for ssh: connect standard input and output to the ssh server", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group *const groups[] = {&group, NULL};

const struct cli_command cmd_ssh_config = {
    .name = "ssh-config",
    .summary = "print a configuration with which ssh reaches a sandbox",
    .usage = "ssh-config NAME",
    .details =
        "Prints a block for ~/.ssh/config. After that, 'ssh NAME.ripcord', scp, sftp, rsync and "
        "the "
        "remote modes of editors work as with a machine: shells, commands, copies, and forwarded "
        "ports and sockets. The sandbox needs no network and listens on no port: ssh starts this "
        "program as its proxy, and each connection is a command in the sandbox, which 'ripcord ps' "
        "shows. A stopped sandbox is started.\n\n"
        "The image needs an sshd (Debian: openssh-server); with image 'host', this machine. The "
        "server runs as the sandbox's user, who must have a name and not be root. The keys are "
        "made "
        "once, in the folder 'ssh' of the state folder. Variables of the sandbox are set in "
        "sessions, except those with a quote, a backslash or a line break. Not available with "
        "isolation 'confined'.",
    .examples = "ripcord ssh-config box >>~/.ssh/config\tset it up\n"
                "ssh box.ripcord\topen a shell\n"
                "rsync -a src/ box.ripcord:src/\tcopy what has changed\n"
                "ssh -N -L 8000:127.0.0.1:8000 box.ripcord\treach a port inside",
    .groups = groups,
    .complete = "sandbox",
    .min_args = 1,
    .max_args = 1,
    .stop_after = -1,
    .run = run,
};
