#include "daemon/core/caches/warm-plan.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/core/caches/warm.h"
#include "daemon/engine/caches.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"

#define LOCKFILE "package-lock.json"

enum {
    PACKAGES_MAX = 500,
    PACKAGE_MAX = 214, /* the longest npm name; versions are short */
    FILES_MAX = 8 << 20,
    WARM_LIFE_MS = 3600 * 1000, /* longer than the limit of the command */
    WARM_REST_MS = 60 * 1000,
};

/*
 * No option here lets a package's own code run, and the name of a package cannot add an option.
 * Files that a tool writes outside its cache are removed with the sandbox.
 */
/* clang-format off */
static const struct warm_recipe {
    const char *tool;
    const char *special; /* allowed in a package name besides letters, digits and "._-" */
    /* commands; the packages follow the first two */
    const char *packages[12], *requirements[16], *lock[12];
} recipes[] = {
    {"pip", "[],<>=!~*;+ ",
     {"python3", "-m", "pip", "download", "--no-input", "--progress-bar=off",
      "--only-binary=:all:", "--dest=wheels"},
     {"python3", "-m", "pip", "download", "--no-input", "--progress-bar=off",
      "--only-binary=:all:", "--dest=wheels", "--requirement=requirements.txt"},
     {NULL}},
    {"uv", "[],<>=!~*;+ ",
     {"uv", "pip", "install", "--no-progress", "--only-binary=:all:", "--target=site"},
     {"uv", "pip", "install", "--no-progress", "--only-binary=:all:", "--target=site",
      "--requirement=requirements.txt"},
     {NULL}},
    {"npm", "@/^~<>=*+| ",
     {"npm", "install", "--ignore-scripts", "--no-audit", "--no-fund",
      "--no-update-notifier", "--no-save", "--prefer-online"},
     {NULL},
     {"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"}},
    {"pnpm", "@/^~<>=*+| ",
     {"pnpm", "add", "--ignore-scripts", "--reporter=append-only"},
     {NULL},
     {NULL}},
    {"yarn", "@/^~<>=*+| ",
     {"yarn", "add", "--ignore-scripts", "--non-interactive", "--no-progress"},
     {NULL},
     {NULL}},
};
/* clang-format on */

struct warm_request {
    const char *tool, *engine, *image, *requirements, *lock;
    const json_t *packages;
};

void warm_plan_done(struct warm_plan *p)
{
    strv_free(p->argv);
    fd_close(p->files);
    json_decref(p->spec);
    *p = (struct warm_plan){.files = -1};
}

/* ---- the request ---- */

static int warm_plan_find_recipe(const char *tool, const struct warm_recipe **ret, struct err *err)
{
    const struct cache_tool *t;
    int r;

    if (!tool)
        return err_set(err, ERR_INVALID, "field 'tool' is missing");
    r = cache_tool_find(tool, &t, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(recipes); i++) {
        if (!STREQ(recipes[i].tool, tool))
            continue;
        *ret = &recipes[i];
        return 0;
    }
    err_set(err, ERR_UNSUPPORTED, "the cache of '%s' cannot be warmed", tool);
    return err_hint(err, "Use pip, uv, npm, pnpm or yarn: the package cache serves Python and "
                         "npm packages.");
}

static int warm_plan_check_package(const struct warm_recipe *r, const char *s, struct err *err)
{
    bool fine = *s && strlen(s) <= PACKAGE_MAX && (isalnum((unsigned char)*s) || *s == '@');

    for (const char *p = s; fine && *p; p++)
        fine = isalnum((unsigned char)*p) || strchr("._-", *p) || strchr(r->special, *p);
    if (fine)
        return 0;
    err_set(err, ERR_INVALID, "invalid package '%.80s' for %s", s, r->tool);
    return err_hint(err,
                    "Write a name, or a name and a version: 'requests==2.32.3', 'left-pad@1.3'.");
}

/* The length of a line without its comment. */
static size_t warm_plan_without_comment(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (line[i] == '#' && (i == 0 || isspace((unsigned char)line[i - 1])))
            return i;
    return len;
}

/* Options in the file could undo ours or name another index, so only digests are allowed. */
static int warm_plan_check_options(const char *text, size_t len, unsigned line, struct err *err)
{
    for (size_t i = 0; i < len; i++) {
        bool option = text[i] == '-' && (i == 0 || isspace((unsigned char)text[i - 1]));

        if (!option || (len - i > 7 && strncmp(text + i, "--hash=", 7) == 0))
            continue;
        err_set(err, ERR_INVALID, "line %u of the requirements: option '%.*s' is not allowed", line,
                (int)MIN(len - i, (size_t)60), text + i);
        return err_hint(err, "Remove the option. Only '--hash=…' is allowed after a requirement.");
    }
    return 0;
}

/* Python ends a line at more characters than we do, some of them not ASCII. After one of those,
 * a comment could continue as an option. */
static int warm_plan_check_characters(const char *text, size_t len, unsigned line, struct err *err)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] != '\t' && (text[i] < ' ' || text[i] > '~'))
            return err_set(err, ERR_INVALID,
                           "line %u of the requirements: character 0x%02x is not allowed", line,
                           (unsigned char)text[i]);
    return 0;
}

/* Appends a line without its comment, which may hold any bytes, also in another encoding. */
static int warm_plan_take_line(const char *text, size_t len, unsigned line, struct buf *ret,
                               struct err *err)
{
    int r;

    if (len && text[len - 1] == '\r')
        len--;
    len = warm_plan_without_comment(text, len);
    r = warm_plan_check_characters(text, len, line, err);
    if (r < 0)
        return r;
    r = warm_plan_check_options(text, len, line, err);
    if (r < 0)
        return r;
    if (buf_append(ret, text, len) < 0 || buf_append_c(ret, '\n') < 0)
        return err_set(err, ERR_LIMIT, "the requirements are larger than %zu bytes", ret->max);
    return 0;
}

static int warm_plan_take_requirements(const char *text, struct buf *ret, struct err *err)
{
    unsigned line = 1;

    for (const char *p = text; *p; line++) {
        size_t len = strcspn(p, "\n");
        int r = warm_plan_take_line(p, len, line, ret, err);

        if (r < 0)
            return r;
        p += len + (p[len] == '\n');
    }
    return 0;
}

static int warm_plan_check_kind(const struct warm_recipe *r, const struct warm_request *q,
                                struct err *err)
{
    int given = (json_array_size(q->packages) > 0) + (q->requirements != NULL) + (q->lock != NULL);

    if (!given)
        return err_set(err, ERR_INVALID, "no packages are given for the cache of '%s'", r->tool);
    if (q->requirements && !r->requirements[0])
        return err_set(err, ERR_INVALID, "%s does not support requirements files", r->tool);
    if (q->lock && !r->lock[0])
        return err_set(err, ERR_INVALID, "%s does not support " LOCKFILE, r->tool);
    if (q->lock && given > 1)
        return err_set(err, ERR_INVALID, "packages and a " LOCKFILE " cannot be combined");
    return 0;
}

/* ---- the command ---- */

static int warm_plan_add_packages(char ***argv, const struct warm_recipe *r, const json_t *packages,
                                  struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int n = packages ? json_read_strv(packages, "packages", &names, err) : 0;

    if (n < 0)
        return n;
    if (strv_len(names) > PACKAGES_MAX)
        return err_set(err, ERR_INVALID, "too many packages (limit %d)", PACKAGES_MAX);
    for (char **name = names; name && *name; name++) {
        if (warm_plan_check_package(r, *name, err) < 0)
            return -ERR_INVALID;
        strv_add(argv, *name);
    }
    return 0;
}

/* ---- the files ---- */

/* Removes the addresses of packages: they come from the package cache here. */
static void warm_plan_drop_urls(json_t *j)
{
    const char *key, *url = json_string_value(json_object_get(j, "resolved"));
    json_t *v;
    void *next;

    if (url && strncmp(url, "http", 4) == 0)
        json_object_del(j, "resolved");
    json_object_foreach_safe(j, next, key, v) if (json_is_object(v)) warm_plan_drop_urls(v);
}

/* npm needs the package.json of a lock file. The lock file has a copy of the relevant parts. */
static json_t *warm_plan_package_of(const json_t *lock)
{
    static const char *const keys[] = {"name",
                                       "version",
                                       "dependencies",
                                       "devDependencies",
                                       "optionalDependencies",
                                       "peerDependencies"};
    const json_t *root = json_object_get(json_object_get(lock, "packages"), "");
    json_t *o = json_object();

    for (size_t i = 0; root && i < ARRAY_SIZE(keys); i++)
        if (json_object_get(root, keys[i]))
            json_object_set(o, keys[i], json_object_get(root, keys[i]));
    return o;
}

static int warm_plan_to_buf(void *arg, const void *data, size_t len)
{
    return buf_append(arg, data, len) < 0 ? -ENOBUFS : 0;
}

static int warm_plan_put_file(struct tar_writer *w, const char *name, const char *text,
                              struct err *err)
{
    struct tar_entry e = {.type = TAR_FILE, .mode = 0644, .size = strlen(text)};
    int r;

    snprintf(e.path, sizeof(e.path), WARM_FOLDER "/%s", name);
    r = tar_put(w, &e, err);
    return r < 0 ? r : tar_write(w, text, strlen(text), err);
}

static int warm_plan_put_requirements(struct tar_writer *w, const char *given, struct err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(FILES_MAX);
    int r = warm_plan_take_requirements(given, &text, err);

    return r < 0 ? r : warm_plan_put_file(w, "requirements.txt", buf_data(&text), err);
}

static int warm_plan_put_lock(struct tar_writer *w, const char *text, struct err *err)
{
    _cleanup_json_ json_t *lock = NULL, *package = NULL;
    _cleanup_free_ char *lock_text = NULL, *package_text = NULL;
    int r = json_parse(LOCKFILE, text, strlen(text), &lock, err);

    if (r < 0)
        return r;
    if (!json_is_object(json_object_get(lock, "packages"))) {
        err_set(err, ERR_INVALID, LOCKFILE " has no 'packages'");
        return err_hint(err, "Write it with npm 7 or later.");
    }
    warm_plan_drop_urls(lock);
    package = warm_plan_package_of(lock);
    lock_text = json_to_text(lock, false);
    package_text = json_to_text(package, false);
    r = warm_plan_put_file(w, LOCKFILE, lock_text, err);
    return r < 0 ? r : warm_plan_put_file(w, "package.json", package_text, err);
}

/* Writes the whole archive into the pipe before anybody reads: supervisors can wait for a pipe,
 * but not for a file. */
static int warm_plan_into_pipe(const struct buf *tar, int *ret, struct err *err)
{
    _cleanup_close_ int near = -1, far = -1;
    int fds[2], r;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    near = fds[0];
    far = fds[1];
    if (fcntl(far, F_SETPIPE_SZ, (int)tar->len) < (int)tar->len)
        return err_set(err, ERR_LIMIT, "the files are too large (%zu bytes)", tar->len);
    r = fd_write_all(far, buf_data(tar), tar->len);
    if (r < 0)
        return err_sys(err, -r, "write to a pipe");
    *ret = TAKE_FD(near);
    return 0;
}

static int warm_plan_make_files(const struct warm_request *q, int *ret, struct err *err)
{
    _cleanup_buf_ struct buf tar = BUF_INIT(FILES_MAX);
    struct tar_entry folder = {.type = TAR_DIR, .mode = 0755, .path = WARM_FOLDER};
    struct tar_writer w;
    int r;

    tar_writer_init(&w, warm_plan_to_buf, &tar);
    r = tar_put(&w, &folder, err);
    if (r < 0)
        return r;
    r = q->requirements ? warm_plan_put_requirements(&w, q->requirements, err) : 0;
    if (r < 0)
        return r;
    r = q->lock ? warm_plan_put_lock(&w, q->lock, err) : 0;
    if (r < 0)
        return r;
    r = tar_finish(&w, err);
    return r < 0 ? r : warm_plan_into_pipe(&tar, ret, err);
}

/* ---- the whole plan ---- */

/* The sandbox sees the present base and adds to it. It does not see the caches of other tools. */
static json_t *warm_plan_make_spec(const struct warm_request *q)
{
    json_t *o = json_pack("{s:s, s:{s:s, s:s}, s:{s:s}, s:I, s:I, s:I}", "network", "packages",
                          "caches", CACHE_ALL, "off", q->tool, "layered", "labels", WARM_LABEL,
                          q->tool, "max_life_ms", (json_int_t)WARM_LIFE_MS, "idle_stop_ms",
                          (json_int_t)WARM_REST_MS, "rm_after_ms", (json_int_t)WARM_REST_MS);

    if (q->engine)
        json_object_set_new(o, "engine", json_string(q->engine));
    if (q->image)
        json_object_set_new(o, "image", json_string(q->image));
    return o;
}

static int warm_plan_read_request(const json_t *doc, struct warm_request *q, struct err *err)
{
    const struct json_field fields[] = {
        {"tool", JSON_FIELD_STRING, &q->tool},
        {"engine", JSON_FIELD_STRING, &q->engine},
        {"image", JSON_FIELD_STRING, &q->image},
        {"packages", JSON_FIELD_ARRAY, &q->packages},
        {"requirements", JSON_FIELD_STRING, &q->requirements},
        {"package_lock", JSON_FIELD_STRING, &q->lock},
    };

    return json_read(doc, NULL, fields, ARRAY_SIZE(fields), err);
}

int warm_plan_read(const json_t *request, struct warm_plan *ret, struct err *err)
{
    _cleanup_(warm_plan_done) struct warm_plan p = {.files = -1};
    const struct warm_recipe *recipe = NULL;
    struct warm_request q = {0};
    const char *const *words;
    int r;

    r = warm_plan_read_request(request, &q, err);
    if (r < 0)
        return r;
    r = warm_plan_find_recipe(q.tool, &recipe, err);
    if (r < 0)
        return r;
    r = warm_plan_check_kind(recipe, &q, err);
    if (r < 0)
        return r;
    words = q.lock ? recipe->lock : q.requirements ? recipe->requirements : recipe->packages;
    while (*words)
        strv_add(&p.argv, *words++);
    r = warm_plan_add_packages(&p.argv, recipe, q.packages, err);
    if (r < 0)
        return r;
    r = warm_plan_make_files(&q, &p.files, err);
    if (r < 0)
        return r;
    p.tool = recipe->tool;
    p.spec = warm_plan_make_spec(&q);
    *ret = p;
    p = (struct warm_plan){.files = -1}; /* handed over */
    return 0;
}
