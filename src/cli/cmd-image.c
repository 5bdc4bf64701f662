/* ripcord image: what sandboxes are made of. Its actions are in image-*.c. */
#include <string.h>

#include "cli/cli.h"
#include "cli/image.h"
#include "cli/options.h"
#include "lib/base/strv.h"

#define BUILD_OPTIONS                                                                              \
    " file tag target build-arg secret ssh pull no-cache network engine progress platform strict "
#define REMOTE_OPTIONS " plain-http username password-stdin "

static const struct {
    const char *name;
    const char *options; /* that it takes, with a space around each */
    int (*run)(struct cli *cli, const struct cli_args *args, struct err *err);
} actions[] = {
    {"build", BUILD_OPTIONS, image_build},
    {"lint", " fix strict ", image_lint},
    {"import", "", image_import},
    {"export", " output format ", image_export},
    {"pull", REMOTE_OPTIONS "platform ", image_pull},
    {"push", REMOTE_OPTIONS, image_push},
    {"ls", "", image_ls},
    {"show", "", image_show},
    {"rm", "", image_rm},
    {"prune", "", image_prune},
};

static int run(struct cli *cli, const struct cli_args *args, struct err *err)
{
    const char *names[ARRAY_SIZE(actions)], *near, *name = args->words[0];
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        names[i] = actions[i].name;
        if (!STREQ(actions[i].name, name))
            continue;
        r = args_check_action(cli->command, name, actions[i].options, args, err);
        return r < 0 ? r : actions[i].run(cli, args, err);
    }
    near = strv_nearest(name, names, ARRAY_SIZE(names));
    err_set(err, ERR_INVALID,
            "'%s' is not build, lint, import, export, pull, push, ls, show, rm or prune", name);
    return near ? err_hint(err, "Did you mean 'ripcord image %s'?", near) : -ERR_INVALID;
}

static const struct cli_option options[] = {
    {"platform", 0, "OS/ARCH",
     "build: for another machine, where the builder can; pull: of another machine", NULL},
    {"strict", 0, NULL,
     "lint: exit with 1 also for what is only info; build: not at all when the linter warns", NULL},
    {0},
};
static const struct cli_option build_options[] = {
    {"file", 'f', "FILE", "the Dockerfile, '-' for the standard input; default: CONTEXT/Dockerfile",
     "@file"},
    {"tag", 't', "NAME", "a name for the image; may come more than once", NULL},
    {"target", 0, "STAGE", "build up to this stage; default: the last", NULL},
    {"build-arg", 0, "NAME=VALUE", "a value for ARG; NAME alone: from the environment", NULL},
    {"secret", 0, "NAME=@FILE",
     "for RUN --mount=type=secret,id=NAME; NAME alone: from the environment (engine native)", NULL},
    {"ssh", 0, "ID[=SOCKET]",
     "an ssh agent for RUN --mount=type=ssh,id=ID ('default' without id); without SOCKET that of "
     "SSH_AUTH_SOCK (engine native)",
     NULL},
    {"pull", 0, NULL, "ask registries for base images, also for those that are here", NULL},
    {"no-cache", 0, NULL, "run every step, whatever is cached of it", NULL},
    {"network", 0, "MODE",
     "of RUN steps: none, packages (default on native: the package registry alone) or open "
     "(default on docker)",
     "none packages open"},
    {"engine", 0, "NAME",
     "engine that builds: native or docker (Docker and Podman); default: as for sandboxes",
     "native docker"},
    {"progress", 0, "HOW", "auto, plain (a log) or tty (live)", "auto plain tty"},
    {0},
};
static const struct cli_option export_options[] = {
    {"output", 'o', "FILE|DIR",
     "where to; a folder (or a name that ends with '/') becomes an OCI layout; without it, "
     "standard output",
     "@file"},
    {"format", 0, "oci|docker",
     "docker is an OCI archive that `docker load` of any version takes (default: oci)",
     "oci docker"},
    {0},
};
static const struct cli_option pull_options[] = {
    {"plain-http", 0, NULL, "without TLS; registries on this machine may do so anyway", NULL},
    {"username", 0, "NAME", "with --password-stdin; else as ~/.docker/config.json says", NULL},
    {"password-stdin", 0, NULL, "the password or token is on the standard input", NULL},
    {0},
};
static const struct cli_option lint_options[] = {
    {"fix", 0, NULL, "repair what can be repaired without a person, in place", NULL},
    {0},
};
static const struct cli_group group = {"Options", options};
static const struct cli_group build_group = {"Options of build", build_options};
static const struct cli_group export_group = {"Options of export", export_options};
static const struct cli_group pull_group = {"Options of pull and push", pull_options};
static const struct cli_group lint_group = {"Options of lint", lint_options};
static const struct cli_group *const groups[] = {&build_group, &export_group, &pull_group,
                                                 &lint_group,  &group,        NULL};

const struct cli_command cmd_image = {
    .name = "image",
    .summary =
        "build images, bring them in, list and remove them; look for mistakes in Dockerfiles",
    .usage = "image build [options] [CONTEXT] | import FILE|DIR|- [NAME] | export NAME [-o "
             "FILE|DIR] | pull NAME [AS] | push NAME [DEST] | ls | show NAME | "
             "rm NAME... | prune | lint [--fix] [--strict] [FILE...]",
    .details =
        "build makes an image from a Dockerfile and the files below CONTEXT (default: the working "
        "directory), without what .dockerignore leaves out; links are not followed, and a socket, "
        "pipe or device there is an error. The Dockerfile is checked first: a mistake is told with "
        "its line and column, and the linter's warnings are shown, before anything is sent. "
        "Progress goes to the standard error, the image's id and names to the standard output; "
        "with --json every event is a line there. Ctrl-C cancels the build and leaves nothing of "
        "it. Base images that registries give only to those who log in are asked for with the "
        "credentials of ~/.docker/config.json, as by pull. With '--engine docker' the engine's own "
        "builder does it (BuildKit, or Podman's), without secrets, ssh agents and these "
        "credentials, and the image is in that engine's store.\n\n"
        "import brings an image into the store, from which sandboxes of engine 'native' start "
        "without copying (--image NAME): a `docker save` archive, an OCI layout (folder or tar), "
        "or a root file system as tar, which needs a NAME; plain or compressed by gzip, zstd or "
        "xz; '-' is the standard input. Every layer is checked against its digest and unpacked by "
        "a helper that can reach nothing else; devices, file capabilities and foreign attributes "
        "are left out. export writes one as an OCI layout, which Podman, skopeo and newer Docker "
        "take, or with --format docker for `docker load`; its layers are packed anew, the same "
        "bytes each time, so their digests are others than those they came with. pull fetches one "
        "from a registry, the layers that are missing, several at a time, each checked against "
        "its digest; what was broken off goes on where it stopped. NAME may end with @sha256:...; "
        "AS is what it is called here. push sends one to the registry in its name or in DEST, "
        "compressed, without what is there already. ls lists the "
        "images, layers that several share counted once; show tells "
        "what one is made of; rm takes a name away and, with the last one, the image, unless a "
        "sandbox is made of it; prune removes what has no name and is not in use.\n\n"
        "lint reads Dockerfiles as BuildKit does and reports what a build would not say: cache "
        "mounts that are contradicted on the same RUN, that belong to the wrong user or lie where "
        "the tool does not look, installs without any cache, versions that are not pinned, secrets "
        "that stay in the image, downloads that are run unread, and more. Each finding has a "
        "place, "
        "a rule and what to do; docs/lint.md has a section for each rule. Without FILE it is "
        "./Dockerfile; '-' is the standard input. No daemon is needed.\n\n"
        "A comment '# ripcord: ignore=RULE' before an instruction (or among its lines) takes a "
        "rule "
        "away for it, '# ripcord: ignore-file=RULE' for the whole file.\n\n"
        "The exit status is 1 when there is a warning or an error, and 0 when there is none.",
    .examples = "ripcord image build -t mine .\t./Dockerfile and what is here\n"
                "ripcord image build -f a/Dockerfile --target test --build-arg V=2 src\tone stage\n"
                "docker save team/tool:1 | ripcord image import -\tfrom Docker's store\n"
                "ripcord image import rootfs.tar.zst mine\ta root file system\n"
                "ripcord run --image mine -- id\ta command in it\n"
                "ripcord image export --format docker mine | docker load\tto Docker\n"
                "ripcord image pull debian:12-slim\tfrom Docker Hub\n"
                "ripcord image push mine ghcr.io/me/mine:1\tto a registry\n"
                "ripcord image lint\t./Dockerfile\n"
                "ripcord image lint --fix a/Dockerfile b/Dockerfile\trepair in place\n"
                "ripcord image lint --json - <Dockerfile\tfor programs\n",
    .groups = groups,
    .words = "build import export pull push ls show rm prune lint",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = run,
};
