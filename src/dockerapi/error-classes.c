/*
 * The status alone is not enough: Podman answers 500 to nearly everything, Docker 404 for an
 * exhausted address pool and 403 for a network in use. The message alone is not enough either,
 * because it contains names that users chose. A row therefore needs both, and the kind of object
 * that the request was about. The first matching row wins. Rows with words come before the general
 * rows at the end.
 *
 * The words are those of real engines (Docker 20.10, Podman 4.3;
 * test/integration/test_docker_facts.py checks them) or, where marked "src", from the sources of
 * later versions.
 */
#include "dockerapi/error-classes.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"
#include "lib/http/wire/http.h"

enum { WORDS_MAX = 1024, BODY_SCAN_MAX = 64 << 10 };

/* ---- the kind of object ---- */

enum error_family {
    SYSTEM = 1 << 0,
    IMAGE = 1 << 1,
    VOLUME = 1 << 2,
    NETWORK = 1 << 3,
    CONTAINER = 1 << 4,
    EXEC = 1 << 5,
    ARCHIVE = 1 << 6,
    CONTAINER_ALL = CONTAINER | EXEC | ARCHIVE,
    ALL = 0x7f,
};

static bool error_classes_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Whether the path is "/containers/ID/<what>". */
static bool error_classes_third_is(const char *path, const char *what)
{
    const char *p = strchr(path + 1, '/');
    size_t n = strlen(what);

    p = p ? strchr(p + 1, '/') : NULL;
    return p && strncmp(p + 1, what, n) == 0 && (p[n + 1] == '\0' || p[n + 1] == '?');
}

static enum error_family error_classes_family_of(const char *path)
{
    if (error_classes_starts(path, "/containers/"))
        return error_classes_third_is(path, "archive") ? ARCHIVE
               : error_classes_third_is(path, "exec")  ? EXEC
                                                       : CONTAINER;
    if (error_classes_starts(path, "/exec/"))
        return EXEC;
    if (error_classes_starts(path, "/images/") || error_classes_starts(path, "/commit") ||
        error_classes_starts(path, "/build"))
        return IMAGE;
    if (error_classes_starts(path, "/volumes"))
        return VOLUME;
    return error_classes_starts(path, "/networks") ? NETWORK : SYSTEM;
}

/* ---- reasons ---- */

/* clang-format off */
static const struct {
    const char *name;
    enum err_code code;
    const char *hint;
} reasons[DOCKER_REASON_MAX] = {
    [DOCKER_OK]            = {"ok", ERR_NONE, NULL},
    [DOCKER_OTHER]         = {"other", ERR_ENGINE, NULL},
    [DOCKER_UNREACHABLE]   = {"unreachable", ERR_ENGINE, "Check that the engine runs, and read its log ('journalctl -u docker')."},
    [DOCKER_SILENT]        = {"silent", ERR_TIMEOUT, "Read the engine's log ('journalctl -u docker'), or restart it. It may be overloaded."},
    [DOCKER_BAD_VERSION]   = {"bad_version", ERR_UNSUPPORTED, "Use Docker 19.03 or later, or Podman 4.0 or later."},
    [DOCKER_NO_CALL]       = {"no_call", ERR_UNSUPPORTED, "Use a newer version of the engine, if it supports this operation."},
    [DOCKER_BAD_REQUEST]   = {"bad_request", ERR_INVALID, NULL},
    [DOCKER_FORBIDDEN]     = {"forbidden", ERR_DENIED, NULL},
    [DOCKER_MISSING]       = {"missing", ERR_NOT_FOUND, NULL},
    [DOCKER_CONFLICT]      = {"conflict", ERR_CONFLICT, NULL},
    [DOCKER_DISK_FULL]     = {"disk_full", ERR_LIMIT, "Remove unused sandboxes, images or volumes, or give the engine's data folder more disk space."},
    [DOCKER_NO_IMAGE]      = {"no_image", ERR_NOT_FOUND, "Build or load the image on this engine first. Only the command line pulls images by itself."},
    [DOCKER_IMAGE_IN_USE]  = {"image_in_use", ERR_CONFLICT, "Remove the sandboxes that use the image first."},
    [DOCKER_NO_CONTAINER]  = {"no_container", ERR_NOT_FOUND, "Create it again. It was probably removed with the engine's own tools."},
    [DOCKER_NAME_TAKEN]    = {"name_taken", ERR_CONFLICT, "Rename or remove the other container, or choose another name."},
    [DOCKER_REMOVING]      = {"removing", ERR_CONFLICT, "Try again in a moment, when the removal has ended."},
    [DOCKER_NOT_RUNNING]   = {"not_running", ERR_CONFLICT, "Start it first."},
    [DOCKER_RUNNING]       = {"running", ERR_CONFLICT, "Stop it first, or force the removal."},
    [DOCKER_PAUSED]        = {"paused", ERR_CONFLICT, "Resume it first."},
    [DOCKER_NOT_PAUSED]    = {"not_paused", ERR_CONFLICT, NULL},
    [DOCKER_BAD_STATE]     = {"bad_state", ERR_CONFLICT, "Check the container's state with the engine's own tools."},
    [DOCKER_NO_PROGRAM]    = {"no_program", ERR_NOT_FOUND, "Check the command: the image does not have that program."},
    [DOCKER_NOT_EXECUTABLE] = {"not_executable", ERR_DENIED, "Check the mode and type of the file."},
    [DOCKER_NO_USER]       = {"no_user", ERR_INVALID, "Use a numeric user id, or add the user to the image."},
    [DOCKER_NO_RUNTIME]    = {"no_runtime", ERR_UNSUPPORTED, "Install the runtime and add it to the engine's configuration (Docker: daemon.json, \"runtimes\")."},
    [DOCKER_NO_INIT]       = {"no_init", ERR_UNSUPPORTED, "Install catatonit in a folder where Podman looks for it."},
    [DOCKER_NO_EXEC]       = {"no_exec", ERR_NOT_FOUND, "Start the command again. Engines drop an exec when its container ends or the engine restarts."},
    [DOCKER_EXEC_STARTED]  = {"exec_started", ERR_CONFLICT, NULL},
    [DOCKER_NO_VOLUME]     = {"no_volume", ERR_NOT_FOUND, NULL},
    [DOCKER_VOLUME_IN_USE] = {"volume_in_use", ERR_CONFLICT, "Remove the containers that use the volume first."},
    [DOCKER_NO_DRIVER]     = {"no_driver", ERR_UNSUPPORTED, "Install the plugin on the engine, or use the default driver."},
    [DOCKER_MOUNT_FAILED]  = {"mount_failed", ERR_INVALID, "Check that the source exists on the machine of the engine."},
    [DOCKER_NO_QUOTA]      = {"no_quota", ERR_UNSUPPORTED, "Use a file system with project quota for the engine (for example xfs with pquota)."},
    [DOCKER_NO_NETWORK]    = {"no_network", ERR_NOT_FOUND, "Create it again. It was probably removed with the engine's own tools."},
    [DOCKER_NETWORK_EXISTS] = {"network_exists", ERR_CONFLICT, NULL},
    [DOCKER_NETWORK_AMBIGUOUS] = {"network_ambiguous", ERR_CONFLICT, "Remove the other networks of that name, by id."},
    [DOCKER_NETWORK_IN_USE] = {"network_in_use", ERR_CONFLICT, "Remove or disconnect the containers on it first."},
    [DOCKER_NETWORK_CONNECTED] = {"network_connected", ERR_CONFLICT, NULL},
    [DOCKER_NETWORK_NOT_CONNECTED] = {"network_not_connected", ERR_CONFLICT, NULL},
    [DOCKER_NETWORK_POOL]  = {"network_pool", ERR_LIMIT, "Remove unused networks ('docker network prune'), or configure more address pools for the engine."},
    [DOCKER_NETWORK_OVERLAP] = {"network_overlap", ERR_CONFLICT, "Choose another subnet."},
    [DOCKER_NO_PATH]       = {"no_path", ERR_NOT_FOUND, NULL},
    [DOCKER_OUTSIDE]       = {"outside", ERR_INVALID, NULL},
    [DOCKER_READ_ONLY]     = {"read_only", ERR_DENIED, NULL},
    [DOCKER_BUSY]          = {"busy", ERR_CONFLICT, "Try again in a moment."},
};

/* ---- rows ---- */

enum { D = 1, P = 2, DP = 3 };

static const struct error_row {
    int families, flavours;
    int low, high;      /* status */
    const char *words;  /* case-insensitive, anywhere; NULL: any */
    const char *too;    /* and these as well; NULL: any */
    enum docker_reason reason;
} rows[] = {
    {ALL,       DP, 200, 599, "no space left on device", NULL, DOCKER_DISK_FULL},
    {ALL,       DP, 200, 599, "disk quota exceeded", NULL, DOCKER_DISK_FULL},
    {ALL,       DP, 400, 400, "client version", "is too old", DOCKER_BAD_VERSION},
    {ALL,       DP, 400, 400, "client version", "is too new", DOCKER_BAD_VERSION},
    {ALL,       D,  404, 404, "page not found", NULL, DOCKER_NO_CALL},
    {ALL,       DP, 405, 405, NULL, NULL, DOCKER_NO_CALL},
    {ALL,       DP, 501, 501, NULL, NULL, DOCKER_NO_CALL},

    {IMAGE | CONTAINER, D, 404, 404, "no such image", NULL, DOCKER_NO_IMAGE},
    {IMAGE,     D,  404, 404, "reference does not exist", NULL, DOCKER_NO_IMAGE},
    {IMAGE | CONTAINER, P, 404, 500, "image not known", NULL, DOCKER_NO_IMAGE},
    {IMAGE,     P,  404, 404, "no such image", NULL, DOCKER_NO_IMAGE},
    {IMAGE,     P,  404, 404, "failed to find image", NULL, DOCKER_NO_IMAGE},
    {IMAGE,     D,  409, 409, "unable to", NULL, DOCKER_IMAGE_IN_USE},
    {IMAGE,     P,  409, 500, "image is in use by a container", NULL, DOCKER_IMAGE_IN_USE},
    {IMAGE,     P,  409, 500, "image used by", NULL, DOCKER_IMAGE_IN_USE},

    {CONTAINER_ALL | NETWORK | IMAGE, DP, 404, 500, "no such container", NULL, DOCKER_NO_CONTAINER},
    {CONTAINER_ALL, P,  404, 500, "no container with name or id", NULL, DOCKER_NO_CONTAINER},
    {CONTAINER_ALL, P,  500, 500, "container has already been removed", NULL, DOCKER_NO_CONTAINER},
    {CONTAINER, D,  409, 409, "is already in use by container", NULL, DOCKER_NAME_TAKEN},
    {CONTAINER, P,  409, 500, "name is already in use", NULL, DOCKER_NAME_TAKEN},
    {CONTAINER, P,  409, 500, "already in use, cannot rename", NULL, DOCKER_NAME_TAKEN},
    {CONTAINER, DP, 409, 409, "removal of container", "already in progress", DOCKER_REMOVING},
    {CONTAINER_ALL | NETWORK, DP, 409, 409, "is marked for removal", NULL, DOCKER_REMOVING},
    {CONTAINER_ALL, P,  409, 500, "container is being removed", NULL, DOCKER_REMOVING},
    {CONTAINER_ALL, P,  409, 500, "in state removing", NULL, DOCKER_REMOVING},
    {CONTAINER, D,  409, 500, "is not paused", NULL, DOCKER_NOT_PAUSED},
    {CONTAINER, P,  409, 500, "is not paused", NULL, DOCKER_NOT_PAUSED},
    {CONTAINER_ALL, D,  409, 409, "paused", NULL, DOCKER_PAUSED},
    {CONTAINER_ALL, P,  409, 500, "is paused", NULL, DOCKER_PAUSED},
    {CONTAINER_ALL, P,  409, 500, "already paused", NULL, DOCKER_PAUSED},
    {CONTAINER_ALL, P,  409, 500, "in state paused", NULL, DOCKER_PAUSED},
    {CONTAINER, D,  409, 409, "cannot remove a running container", NULL, DOCKER_RUNNING},
    {CONTAINER, D,  409, 409, "container is running", NULL, DOCKER_RUNNING}, /* src: 26 and later */
    {CONTAINER, P,  409, 500, "as it is running", NULL, DOCKER_RUNNING},
    {CONTAINER_ALL, D,  409, 409, "is not running", NULL, DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, D,  409, 409, "is restarting", NULL, DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "can only create exec sessions on running containers", NULL, DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "is not running", NULL, DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "container state improper", "running containers", DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "container state improper", "in state exited", DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "container state improper", "in state stopped", DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "container state improper", "in state created", DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "container state improper", "in state configured", DOCKER_NOT_RUNNING},
    {CONTAINER_ALL, P,  409, 500, "container state improper", NULL, DOCKER_BAD_STATE},

    {EXEC,      D,  404, 404, "no such exec instance", NULL, DOCKER_NO_EXEC},
    {EXEC,      P,  404, 500, "no such exec session", NULL, DOCKER_NO_EXEC},
    {EXEC,      P,  404, 404, "exec session not found", NULL, DOCKER_NO_EXEC},
    {EXEC,      D,  409, 409, "has already run", NULL, DOCKER_EXEC_STARTED},
    {EXEC,      P,  409, 500, "exec session state improper", NULL, DOCKER_EXEC_STARTED},

    {CONTAINER | EXEC, D, 400, 500, "executable file not found", NULL, DOCKER_NO_PROGRAM},
    {CONTAINER | EXEC, D, 400, 500, "exec: \"", "no such file or directory", DOCKER_NO_PROGRAM},
    {CONTAINER | EXEC, P, 404, 500, "invoke a command that was not found", NULL, DOCKER_NO_PROGRAM},
    {CONTAINER | EXEC, D, 400, 500, "exec: \"", "permission denied", DOCKER_NOT_EXECUTABLE},
    {CONTAINER | EXEC, D, 400, 500, "exec format error", NULL, DOCKER_NOT_EXECUTABLE},
    {CONTAINER | EXEC, P, 400, 500, "OCI permission denied", NULL, DOCKER_NOT_EXECUTABLE},
    {CONTAINER | EXEC, DP, 400, 500, "unable to find user", NULL, DOCKER_NO_USER},
    {CONTAINER | EXEC, DP, 400, 500, "no matching entries in passwd file", NULL, DOCKER_NO_USER},
    {CONTAINER, D,  400, 500, "unknown runtime specified", NULL, DOCKER_NO_RUNTIME},
    {CONTAINER, D,  400, 500, "unknown or invalid runtime name", NULL, DOCKER_NO_RUNTIME}, /* src: 23 and later */
    {CONTAINER, P,  400, 500, "container-init binary not found", NULL, DOCKER_NO_INIT},
    {CONTAINER, DP, 400, 500, "storage-opt is supported only", NULL, DOCKER_NO_QUOTA},
    {CONTAINER, DP, 400, 500, "bind source path does not exist", NULL, DOCKER_MOUNT_FAILED},
    {CONTAINER, DP, 400, 500, "failed to mount local volume", NULL, DOCKER_MOUNT_FAILED},
    {CONTAINER, P,  500, 500, "mounting volume", NULL, DOCKER_MOUNT_FAILED},
    /* Podman unmounts the container after an archive upload, and the start's mount with it. */
    {CONTAINER, P,  500, 500, "mounting storage for container", "/merged: no such file", DOCKER_BUSY},
    {CONTAINER, P,  500, 500, "statfs", "no such file or directory", DOCKER_MOUNT_FAILED},

    {VOLUME | CONTAINER, DP, 404, 500, "no such volume", NULL, DOCKER_NO_VOLUME},
    {VOLUME,    D,  409, 409, "volume is in use", NULL, DOCKER_VOLUME_IN_USE},
    {VOLUME,    P,  409, 500, "volume is being used", NULL, DOCKER_VOLUME_IN_USE},
    {VOLUME | NETWORK | CONTAINER, D, 400, 500, "plugin", "not found", DOCKER_NO_DRIVER},
    {VOLUME,    P,  400, 500, "required plugin missing", NULL, DOCKER_NO_DRIVER},
    {NETWORK,   P,  400, 500, "unsupported driver", NULL, DOCKER_NO_DRIVER},
    {VOLUME,    D,  400, 500, "no quota support", NULL, DOCKER_NO_QUOTA},
    {VOLUME,    P,  400, 500, "does not support project quota", NULL, DOCKER_NO_QUOTA},

    /* Before "not found": Docker answers 404 when its address pools are exhausted. */
    {NETWORK | CONTAINER, DP, 400, 500, "non-overlapping IPv4 address pool", NULL, DOCKER_NETWORK_POOL},
    {NETWORK | CONTAINER, DP, 400, 500, "address pools have been fully subnetted", NULL, DOCKER_NETWORK_POOL}, /* src: 28 and later */
    {NETWORK,   P,  400, 500, "could not find free subnet", NULL, DOCKER_NETWORK_POOL},
    {NETWORK,   D,  400, 500, "pool overlaps with other one", NULL, DOCKER_NETWORK_OVERLAP},
    {NETWORK,   P,  400, 500, "is already used on the host or by another config", NULL, DOCKER_NETWORK_OVERLAP},
    {NETWORK,   D,  409, 409, "already exists", NULL, DOCKER_NETWORK_EXISTS},
    {NETWORK,   P,  409, 500, "network already exists", NULL, DOCKER_NETWORK_EXISTS},
    {NETWORK,   P,  409, 500, "already exists: network", NULL, DOCKER_NETWORK_EXISTS},
    {NETWORK | CONTAINER, D, 400, 409, "is ambiguous", NULL, DOCKER_NETWORK_AMBIGUOUS},
    {NETWORK,   D,  400, 409, "has active endpoints", NULL, DOCKER_NETWORK_IN_USE},
    {NETWORK,   P,  400, 500, "network is being used", NULL, DOCKER_NETWORK_IN_USE},
    {NETWORK,   D,  400, 409, "endpoint with name", "already exists in network", DOCKER_NETWORK_CONNECTED},
    {NETWORK,   P,  400, 500, "network is already connected", NULL, DOCKER_NETWORK_CONNECTED},
    {NETWORK,   P,  400, 500, "is already connected to network", NULL, DOCKER_NETWORK_CONNECTED},
    {NETWORK,   DP, 400, 500, "is not connected to", NULL, DOCKER_NETWORK_NOT_CONNECTED},
    {NETWORK | CONTAINER, D, 404, 404, "network", "not found", DOCKER_NO_NETWORK},
    {NETWORK | CONTAINER, P, 404, 500, "network not found", NULL, DOCKER_NO_NETWORK},
    {NETWORK | CONTAINER, P, 404, 500, "unable to find network", NULL, DOCKER_NO_NETWORK},

    {ARCHIVE,   D,  404, 404, "could not find the file", NULL, DOCKER_NO_PATH},
    {ARCHIVE,   DP, 400, 500, "no such file or directory", NULL, DOCKER_NO_PATH},
    {ARCHIVE,   P,  404, 404, NULL, NULL, DOCKER_NO_PATH},
    {ARCHIVE,   D,  400, 500, "is outside of", NULL, DOCKER_OUTSIDE},
    {ARCHIVE,   D,  400, 500, "marked read-only", NULL, DOCKER_READ_ONLY},
    {ALL,       D,  409, 409, "operation is already running", NULL, DOCKER_BUSY},

    /* Invalid values with status 500: always on Podman, sometimes on Docker. */
    {ALL,       DP, 500, 500, "cannot unmarshal", NULL, DOCKER_BAD_REQUEST},
    {NETWORK,   DP, 500, 500, "invalid CIDR address", NULL, DOCKER_BAD_REQUEST},
    {NETWORK,   P,  500, 500, "invalid network mode", NULL, DOCKER_BAD_REQUEST},
    {NETWORK,   P,  500, 500, "conflicts with a valid network mode", NULL, DOCKER_BAD_REQUEST},
    {CONTAINER, P,  500, 500, "invalid signal", NULL, DOCKER_BAD_REQUEST},
    {ALL,       P,  500, 500, "is an invalid filter", NULL, DOCKER_BAD_REQUEST},
    {ALL,       P,  500, 500, "invalid argument", NULL, DOCKER_BAD_REQUEST},

    {ALL,       DP, 400, 400, NULL, NULL, DOCKER_BAD_REQUEST},
    {ALL,       DP, 401, 401, NULL, NULL, DOCKER_FORBIDDEN},
    {ALL,       DP, 403, 403, NULL, NULL, DOCKER_FORBIDDEN},
    {ALL,       DP, 404, 404, NULL, NULL, DOCKER_MISSING},
    {ALL,       DP, 409, 409, NULL, NULL, DOCKER_CONFLICT},
};
/* clang-format on */

const char *docker_flavour_name(enum docker_flavour f)
{
    return f == DOCKER_FLAVOUR_PODMAN ? "podman" : "docker";
}

const char *docker_reason_name(enum docker_reason r)
{
    return (unsigned)r < DOCKER_REASON_MAX ? reasons[r].name : "other";
}

static bool error_classes_row_fits(const struct error_row *row, const struct docker_answer *a,
                                   const char *words)
{
    int flavour = a->flavour == DOCKER_FLAVOUR_PODMAN ? P : D;

    return (row->families & error_classes_family_of(a->path)) && (row->flavours & flavour) &&
           a->status >= row->low && a->status <= row->high &&
           (!row->words || strcasestr(words, row->words)) &&
           (!row->too || strcasestr(words, row->too));
}

static enum docker_reason error_classes_reason_of(const struct docker_answer *a, const char *words)
{
    /* Podman's router answers an unknown path without JSON. (An empty 404 means something else.) */
    if (a->flavour == DOCKER_FLAVOUR_PODMAN && a->status == 404 && a->len &&
        STREQ(words, "Not Found"))
        return DOCKER_NO_CALL;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (error_classes_row_fits(&rows[i], a, words))
            return rows[i].reason;
    return DOCKER_OTHER;
}

/* ---- words ---- */

char *docker_words(const char *text, size_t len)
{
    struct buf b = BUF_INIT(4 * WORDS_MAX + sizeof("…"));

    /* The maximum holds the longest escape of each byte, so appending cannot fail. */
    if (text_escape(&b, text, MIN(len, (size_t)WORDS_MAX)) < 0 ||
        (len > WORDS_MAX && buf_append_str(&b, "…") < 0))
        buf_clear(&b);
    return buf_steal(&b);
}

/* The field "message", plus Podman's "cause" unless the message contains it. NULL: not JSON. */
static char *error_classes_json_words(const struct docker_answer *a)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *message, *cause;

    if (a->len == 0 || json_parse("answer", a->body, a->len, &doc, NULL) < 0)
        return NULL;
    message = json_string_value(json_object_get(doc, "message"));
    cause = json_string_value(json_object_get(doc, "cause"));
    if (!message && !cause)
        return NULL;
    if (!message || !cause || strstr(message, cause))
        return xstrdup(message ? message : cause);
    return xasprintf("%s: %s", message, cause);
}

/* The whole message, for the table. docker_words() shortens it for people. */
static char *error_classes_words_of(const struct docker_answer *a)
{
    char *words = error_classes_json_words(a);

    if (!words)
        words = xstrndup(a->body, MIN(a->len, (size_t)BODY_SCAN_MAX));
    for (size_t n = strlen(words); n && strchr(" \t\r\n", words[n - 1]); n--)
        words[n - 1] = '\0';
    if (*words)
        return words;
    free(words);
    return xstrdup(http_status_text(a->status));
}

int docker_reason_err(enum docker_reason reason, struct err *err, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = err_setv(err, reasons[reason].code, fmt, ap);
    va_end(ap);
    if (err && reasons[reason].hint)
        err_hint(err, "%s", reasons[reason].hint);
    return r;
}

int docker_classify(const struct docker_answer *a, enum docker_reason *ret_reason, struct err *err)
{
    _cleanup_free_ char *words = error_classes_words_of(a);
    enum docker_reason reason = error_classes_reason_of(a, words);

    _cleanup_free_ char *safe = docker_words(words, strlen(words));

    if (ret_reason)
        *ret_reason = reason;
    return docker_reason_err(reason, err, "%s says: %s (HTTP %d)", docker_flavour_name(a->flavour),
                             safe, a->status);
}
