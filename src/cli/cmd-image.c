/* ripcord image: the images of sandboxes. The actions are in image-*.c. */
#include "cli/cli.h"
#include "cli/image.h"
#include "cli/options.h"

#define BUILD_OPTIONS                                                                              \
    " file tag target build-arg secret ssh pull no-cache network engine progress platform strict "
#define REMOTE_OPTIONS " plain-http username password-stdin "

static const struct cli_action actions[] = {
    {"build", CLI_ANY, BUILD_OPTIONS, image_build},
    {"lint", CLI_ANY, " fix strict ", image_lint},
    {"import", CLI_ANY, "", image_import},
    {"export", CLI_ANY, " output format ", image_export},
    {"pull", CLI_ANY, REMOTE_OPTIONS "platform ", image_pull},
    {"push", CLI_ANY, REMOTE_OPTIONS, image_push},
    {"ls", CLI_ANY, " quiet ", image_ls},
    {"show", CLI_ANY, "", image_show},
    {"rm", CLI_ANY, "", image_rm},
    {"prune", CLI_ANY, "", image_prune},
    {0},
};

static const struct cli_option options[] = {
    {"platform", 0, "OS/ARCH",
     "build: build for this platform, if the builder supports it; pull: pull the image of this "
     "platform",
     NULL},
    {"strict", 0, NULL,
     "lint: exit with status 1 for findings of level info, too; build: stop if the linter has "
     "warnings",
     NULL},
    {0},
};
static const struct cli_option build_options[] = {
    {"file", 'f', "FILE",
     "path of the Dockerfile; '-' reads it from standard input (default: CONTEXT/Dockerfile)",
     "@file"},
    {"tag", 't', "NAME", "name of the image; may be repeated", NULL},
    {"target", 0, "STAGE", "build up to this stage (default: the last)", NULL},
    {"build-arg", 0, "NAME=VALUE",
     "set an ARG; NAME alone takes the value from the environment; may be repeated", NULL},
    {"secret", 0, "NAME=@FILE",
     "secret for RUN --mount=type=secret,id=NAME; NAME alone takes the value from the environment; "
     "may be repeated (engine native)",
     NULL},
    {"ssh", 0, "ID[=SOCKET]",
     "ssh agent for RUN --mount=type=ssh,id=ID (the default id is 'default'); SOCKET defaults to "
     "SSH_AUTH_SOCK; may be repeated (engine native)",
     NULL},
    {"pull", 0, NULL, "check the registry for newer base images", NULL},
    {"no-cache", 0, NULL, "run every step and ignore cached results", NULL},
    {"network", 0, "MODE",
     "network of RUN steps: none, packages (the package cache only; default on native) or open "
     "(default on docker)",
     "none packages open"},
    {"engine", 0, "NAME",
     "engine that builds: native or docker (Docker and Podman); default: the engine that `ripcord "
     "run` uses",
     "native docker"},
    {"progress", 0, "MODE", "auto (default), plain (a log) or tty (a live view)", "auto plain tty"},
    {0},
};
static const struct cli_option export_options[] = {
    {"output", 'o', "FILE|DIR",
     "destination; a folder (or a name that ends with '/') becomes an OCI layout (default: "
     "standard output)",
     "@file"},
    {"format", 0, "oci|docker",
     "archive format: oci (default), or docker for `docker load` of any version", "oci docker"},
    {0},
};
static const struct cli_option pull_options[] = {
    {"plain-http", 0, NULL,
     "do not use TLS (registries on loopback addresses may answer without TLS anyway)", NULL},
    {"username", 0, "NAME",
     "user name for the registry; needs --password-stdin (default: ~/.docker/config.json)", NULL},
    {"password-stdin", 0, NULL, "read the password or token from standard input", NULL},
    {0},
};
static const struct cli_option ls_options[] = {
    {"quiet", 'q', NULL, "print only the names", NULL},
    {0},
};
static const struct cli_option lint_options[] = {
    {"fix", 0, NULL, "fix findings in place where that is possible automatically", NULL},
    {0},
};
static const struct cli_group group = {"Options of build, import, pull and lint", options};
static const struct cli_group build_group = {"Options of build", build_options};
static const struct cli_group export_group = {"Options of export", export_options};
static const struct cli_group pull_group = {"Options of pull and push", pull_options};
static const struct cli_group lint_group = {"Options of lint", lint_options};
static const struct cli_group ls_group = {"Options of ls", ls_options};
static const struct cli_group *const groups[] = {
    &build_group, &export_group, &pull_group, &lint_group, &ls_group, &group, NULL};

const struct cli_command cmd_image = {
    .name = "image",
    .summary = "build, import, export, pull, push, list, remove and lint images",
    .usage =
        "image build [options] [CONTEXT] | import FILE|DIR|- [NAME] | export NAME [-o FILE|DIR] "
        "| pull NAME [AS] | push NAME [DEST] | ls | show NAME | rm NAME... | prune | lint "
        "[--fix] [--strict] [FILE...]",
    .details =
        "build builds an image from a Dockerfile and the files below CONTEXT (default: the "
        "working folder), except those that .dockerignore excludes. Links are not followed. A "
        "socket, a pipe or a device in the context is an error. The Dockerfile is checked before "
        "anything is sent: errors are reported with line and column, and warnings of the linter "
        "are shown. Progress is printed on standard error; the id and the names of the image are "
        "printed on standard output. With --json, every event is one line on standard output. "
        "Ctrl-C cancels the build and leaves nothing behind. Private base images are pulled with "
        "the credentials of ~/.docker/config.json. With '--engine docker', the builder of that "
        "engine is used (BuildKit or Podman's), and the image is stored in that engine. Secrets, "
        "ssh agents and the credentials of ~/.docker/config.json are not available there.\n\n"
        "import adds an image to the image store. Native sandboxes use it directly (--image "
        "NAME); its files are not copied. The input is a `docker save` archive, an OCI layout "
        "(folder or tar), or a root file system as a tar archive (then NAME is required). The "
        "input may be compressed with gzip, zstd or xz; '-' is standard input. Every layer is "
        "checked against its digest and unpacked by an isolated helper process. Devices, file "
        "capabilities and extended attributes of other systems are skipped.\n\n"
        "export writes an image as an OCI layout for Podman, skopeo and newer versions of "
        "Docker, or with --format docker for `docker load`. Layers are packed again, so "
        "their digests differ from the original ones. Two exports of one image are identical.\n\n"
        "pull downloads an image from a registry. Only missing layers are downloaded, several at "
        "a time, and each is checked against its digest. An interrupted pull continues where it "
        "stopped. NAME may end with @sha256:...; AS is the local name.\n\n"
        "push uploads an image to the registry that its name contains, or to DEST. Layers are "
        "compressed, "
        "and layers that the registry already has are skipped.\n\n"
        "ls lists the images; the total counts shared layers once.\n\n"
        "show prints the details of one image.\n\n"
        "rm removes a name. When the last name is removed, the image is removed too, unless a "
        "sandbox uses it.\n\n"
        "prune removes images without a name that are not in use.\n\n"
        "lint checks Dockerfiles, parsed as BuildKit parses them, for problems that a build does "
        "not report: cache mounts that have no effect, belong to the wrong user or have the "
        "wrong target, installs without a cache, unpinned versions, secrets that stay in the "
        "image, downloaded programs that run without a digest check, and more. Each finding has a "
        "position, a rule and "
        "a fix; docs/lint.md explains the rules. The default FILE is ./Dockerfile; '-' is "
        "standard input. No daemon is needed. The exit status is 1 if there is a warning or an "
        "error.\n\n"
        "The comment '# ripcord: ignore=RULE' before an instruction (or between its lines) "
        "disables a rule for that instruction; '# ripcord: ignore-file=RULE' disables it for the "
        "file.",
    .examples =
        "ripcord image build -t mine .\tbuild ./Dockerfile with the files of this folder\n"
        "ripcord image build -f a/Dockerfile --target test --build-arg V=2 src\tbuild one stage\n"
        "docker save team/tool:1 | ripcord image import -\timport from Docker\n"
        "ripcord image import rootfs.tar.zst mine\timport a root file system\n"
        "ripcord run --image mine -- id\trun a command in the image\n"
        "ripcord image export --format docker mine | docker load\texport to Docker\n"
        "ripcord image pull debian:12-slim\tpull from Docker Hub\n"
        "ripcord image push mine ghcr.io/me/mine:1\tpush to a registry\n"
        "ripcord image lint\tcheck ./Dockerfile\n"
        "ripcord image lint --fix a/Dockerfile b/Dockerfile\tfix in place\n"
        "ripcord image lint --json - <Dockerfile\tprint findings for programs",
    .groups = groups,
    .actions = actions,
    .words = "build import export pull push ls show rm prune lint",
    .complete = "word image+",
    .min_args = 1,
    .max_args = CLI_ANY,
    .stop_after = -1,
    .run = cli_run_action,
};
