/* ripcord image lint: checks Dockerfiles without a daemon. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/image.h"
#include "cli/options.h"
#include "cli/output.h"
#include "image/lint/lint.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum {
    FILE_MAX = DOCKERFILE_SIZE_MAX + 1
}; /* one byte more, so that the parser reports the limit */

struct lint_job {
    const char *path; /* "-" is standard input */
    char *text;       /* owned */
    size_t len;
    struct lint_report report;
    size_t fixed;
};

static void image_lint_job_done(struct lint_job *j)
{
    free(j->text);
    lint_report_done(&j->report);
}
#define _cleanup_lint_job_ __attribute__((cleanup(image_lint_job_done)))

/* ---- in ---- */

static int image_lint_read_text(struct lint_job *j, struct err *err)
{
    const char *path = STREQ(j->path, "-") ? "/dev/stdin" : j->path;
    struct stat st;
    int r;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        err_set(err, ERR_INVALID, "'%s' is a folder", j->path);
        return err_hint(err, "Give the path of the Dockerfile in it.");
    }
    r = file_read(AT_FDCWD, path, FILE_MAX, &j->text, &j->len, err);
    if (r < 0 && err && err->errnum == ENOENT)
        err->code = ERR_NOT_FOUND;
    return r < 0 ? -(int)(err ? err->code : ERR_SYSTEM) : 0;
}

/* Docker uses Dockerfile.dockerignore, else the .dockerignore of the context. The context is
 * unknown here, so the folder of the Dockerfile and the working folder are both tried. */
static bool image_lint_has_ignore_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    _cleanup_free_ char *own = xasprintf("%s.dockerignore", path);
    _cleanup_free_ char *beside = xasprintf("%.*s.dockerignore", folder, path);

    return STREQ(path, "-") || access(own, F_OK) == 0 || access(beside, F_OK) == 0 ||
           access(".dockerignore", F_OK) == 0;
}

/* ---- --fix ---- */

/* An edit can make another one possible, so edits are repeated until nothing changes. */
static int image_lint_fix(struct lint_job *j, const struct lint_context *context, struct err *err)
{
    _cleanup_free_ char *real = NULL; /* keeps a symbolic link */
    size_t fixed = 1, len;
    struct stat st;

    for (int round = 0; fixed && round < 10; round++) {
        char *text = lint_apply(j->text, j->len, &j->report, &len, &fixed);

        free(j->text);
        j->text = text;
        j->len = len;
        j->fixed += fixed;
        lint_report_done(&j->report);
        lint_check(j->text, j->len, context, &j->report);
    }
    if (!j->fixed)
        return 0;
    real = realpath(j->path, NULL);
    if (!real || stat(real, &st) < 0)
        return err_sys(err, errno, "stat '%s'", j->path);
    return file_replace(AT_FDCWD, real, j->text, j->len, st.st_mode & 07777, false, err);
}

static int image_lint_check(struct lint_job *j, bool repair, struct err *err)
{
    struct lint_context context;
    int r = image_lint_read_text(j, err);

    if (r < 0)
        return r;
    if (repair && STREQ(j->path, "-"))
        return err_set(err, ERR_INVALID, "--fix cannot change standard input; give a file");
    context = (struct lint_context){.has_ignore_file = image_lint_has_ignore_file(j->path)};
    lint_check(j->text, j->len, &context, &j->report);
    return repair ? image_lint_fix(j, &context, err) : 0;
}

/* ---- out ---- */

static void image_lint_print_finding(FILE *to, const char *path, const char *text,
                                     const struct lint_finding *f)
{
    struct dockerfile_pos pos = lint_pos(text, f->at);
    enum lint_severity severity = f->rule->severity;
    enum output_color color = severity == LINT_ERROR     ? COLOR_RED
                              : severity == LINT_WARNING ? COLOR_YELLOW
                                                         : COLOR_DIM;

    output_text(to, path);
    fprintf(to, ":%u:%u: %s%s%s: ", pos.line, pos.column, output_color(to, color),
            lint_severity_name(severity), output_color(to, COLOR_NONE));
    output_text(to, f->message);
    fprintf(to, " %s[%s]%s\n", output_color(to, COLOR_DIM), f->rule->id,
            output_color(to, COLOR_NONE));
    if (f->fix) {
        fputs("    ", to);
        output_text(to, f->fix);
        fputs(f->edit ? " (fixable with --fix)\n" : "\n", to);
    }
}

static json_t *image_lint_place_json(const char *text, size_t at)
{
    struct dockerfile_pos pos = lint_pos(text, at);

    return json_pack("{sIsI}", "line", (json_int_t)pos.line, "column", (json_int_t)pos.column);
}

static json_t *image_lint_finding_json(const char *text, const struct lint_finding *f)
{
    _cleanup_free_ char *docs = xasprintf("docs/lint.md#%s", f->rule->id);

    return json_pack("{sssssososssssssb}", "rule", f->rule->id, "severity",
                     lint_severity_name(f->rule->severity), "start",
                     image_lint_place_json(text, f->at), "end", image_lint_place_json(text, f->end),
                     "message", f->message, "fix", f->fix ? f->fix : "", "docs", docs, "fixable",
                     f->edit != NULL);
}

static json_t *image_lint_job_json(const struct lint_job *j)
{
    json_t *findings = json_array();

    for (size_t i = 0; i < j->report.n; i++) {
        json_t *one = image_lint_finding_json(j->text, &j->report.findings[i]);

        if (one) /* NULL when a message is not UTF-8 */
            json_array_append_new(findings, one);
    }
    return json_pack("{sssosI}", "file", j->path, "findings", findings, "fixed",
                     (json_int_t)j->fixed);
}

static void image_lint_print_job(const struct cli *cli, const struct lint_job *j, json_t *doc)
{
    if (cli->json) {
        json_array_append_new(doc, image_lint_job_json(j));
        return;
    }
    for (size_t i = 0; i < j->report.n; i++)
        image_lint_print_finding(stdout, j->path, j->text, &j->report.findings[i]);
    if (j->fixed) {
        output_text(stdout, j->path);
        printf(": %zu fixed\n", j->fixed);
    }
}

void image_lint_show(const struct cli *cli, const char *path, const char *text,
                     const struct lint_finding *f)
{
    _cleanup_json_ json_t *doc = NULL;

    if (!cli->json) {
        image_lint_print_finding(stderr, path, text, f);
        return;
    }
    doc = image_lint_finding_json(text, f);
    if (!doc) /* the message is not UTF-8 */
        return;
    json_object_set_new(doc, "event", json_string("lint"));
    json_object_set_new(doc, "file", json_string(path));
    output_json(doc);
}

int image_lint(struct cli *cli, const struct cli_args *args, struct err *err)
{
    char *standard[] = {"Dockerfile", NULL}, **paths = args->words + 1;
    int worst = -1, bound = args_has(args, "strict") ? LINT_INFO : LINT_WARNING;
    _cleanup_json_ json_t *files = json_array(), *doc = NULL;

    for (paths = *paths ? paths : standard; *paths; paths++) {
        _cleanup_lint_job_ struct lint_job j = {.path = *paths};
        int r = image_lint_check(&j, args_has(args, "fix"), err);

        if (r < 0)
            return r;
        image_lint_print_job(cli, &j, files);
        worst = MAX(worst, lint_worst(&j.report));
    }
    doc = json_pack("{sO}", "files", files);
    if (cli->json)
        output_json(doc);
    else if (worst < 0)
        puts("no findings");
    return worst >= bound ? 1 : 0;
}
