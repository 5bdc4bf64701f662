#include "image/build/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "image/build/add-downloads.h"
#include "image/build/context.h"
#include "image/build/copy.h"
#include "image/build/sources.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

struct files_job {
    const struct build_plan_step *step;
    const char *from; /* the sources' folder in the workspace */
    char *const *sources;
    struct filter_want want;
    bool own; /* copies belong to root, unless --chown names another owner */
    int mode; /* of copies, unless --chmod gives one; -1: as the sources have it */
};

/* In the child. */
static int step_files_do_copy(void *arg, int dir, struct err *err)
{
    const struct files_job *f = arg;
    const struct build_plan_step *s = f->step;
    struct copy_job job = {
        .sources = f->sources, .want = f->want, .dest = s->dest, .mode = f->mode};
    _cleanup_close_ int from = -1, to = -1;
    int r;

    r = dir_open(dir, f->from, &from, err);
    if (r < 0)
        return r;
    r = dir_open(dir, "root", &to, err);
    if (r < 0)
        return r;
    if (s->chown) {
        r = copy_owner_find(to, s->chown, &job.owner, err);
        if (r < 0)
            return r;
    }
    job.from = from;
    job.to = to;
    job.owner.given |= f->own;
    job.way = job.owner;
    job.way.given = true; /* root owns new folders, unless --chown names another owner */
    if (s->chmod)
        job.mode = (int)strtol(s->chmod, NULL, 8) & 07777;
    return copy_files(&job, err);
}

/* In the child. */
static int step_files_do_workdir(void *arg, int dir, struct err *err)
{
    const struct build_plan_step *s = arg;
    struct copy_owner owner = {.given = true};
    _cleanup_close_ int root = -1, made = -1;
    int r;

    r = dir_open(dir, "root", &root, err);
    if (r < 0)
        return r;
    if (s->user) {
        r = copy_owner_find(root, s->user, &owner, err);
        if (r < 0)
            return r;
    }
    return copy_make_folder(root, s->workdir, &owner, &made, err);
}

/* Writes the heredocs of a COPY into a folder, from which they are copied like other files. */
static int step_files_write_heredocs(struct builder *b, const struct build_plan_step *s,
                                     char **ret_folder, char ***ret_names, struct err *err)
{
    int r = workspace_folder(&b->workspace, 0755, ret_folder, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i < s->n_files; i++) {
        const struct build_file *f = &s->files[i];
        _cleanup_free_ char *path = xasprintf("%s/%s", *ret_folder, f->name);

        if (strchr(f->name, '/'))
            return err_set(err, ERR_INVALID, "heredoc '%.64s': a file name cannot contain '/'",
                           f->name);
        r = file_replace(b->workspace.dir, path, f->content, strlen(f->content), 0644, false, err);
        if (r < 0)
            return r;
        if (fchmodat(b->workspace.dir, path, 0644, 0) < 0)
            return err_sys(err, errno, "make file '%.64s'", f->name);
        strv_add(ret_names, f->name);
    }
    return 0;
}

static int step_files_copy_heredocs(struct builder *b, const struct builder_state *st,
                                    const struct build_plan_step *s, unsigned n, struct err *err)
{
    _cleanup_free_ char *folder = NULL;
    _cleanup_strv_ char **names = NULL;
    struct files_job f = {.step = s, .own = true, .mode = -1};
    int r;

    if (!s->n_files)
        return 0;
    r = step_files_write_heredocs(b, s, &folder, &names, err);
    if (r < 0)
        return r;
    f.from = folder;
    f.sources = names;
    return workspace_run(
        &b->workspace,
        &(struct workspace_job){
            .n = n, .layers = st->layers, .mount_root = true, .fn = step_files_do_copy, .arg = &f},
        err);
}

static int step_files_copy_sources(struct builder *b, const struct builder_state *st,
                                   const struct build_plan_step *s, unsigned n, struct err *err)
{
    bool elsewhere = build_is_from_elsewhere(&s->from);
    struct files_job f = {.step = s,
                          .from = elsewhere ? "src" : "context",
                          .sources = s->sources,
                          .want = {s->parents, s->exclude},
                          .own = !elsewhere,
                          .mode = -1};
    struct workspace_job job = {
        .n = n, .layers = st->layers, .mount_root = true, .fn = step_files_do_copy, .arg = &f};
    _cleanup_strv_ char **from = NULL, **plain = NULL;
    int r;

    if (!s->sources)
        return 0;
    if (elsewhere) {
        r = builder_layers(b, &s->from, &from, err);
        if (r < 0)
            return r;
        job.from = from;
    }
    if (s->unpack) {
        r = context_add(&b->workspace, s, f.from, s->sources, st->layers, n, &plain, err);
        if (r < 0)
            return r;
        f.sources = plain;
    }
    return f.sources ? workspace_run(&b->workspace, &job, err) : 0;
}

/* A downloaded file has mode 0600, unless --chmod gives another, as in BuildKit. */
static int step_files_copy_download(struct builder *b, const struct builder_state *st,
                                    const struct add_downloads *downloads, size_t i, unsigned n,
                                    struct err *err)
{
    const struct build_plan_step *s = downloads->step;
    _cleanup_free_ char *name = sources_literal(s->urls[i].name);
    char *const one[] = {name, NULL};
    struct files_job f = {.step = s,
                          .from = downloads->files[i].folder,
                          .sources = one,
                          .want = {.exclude = s->exclude},
                          .own = true,
                          .mode = 0600};
    const struct workspace_job job = {
        .n = n, .layers = st->layers, .mount_root = true, .fn = step_files_do_copy, .arg = &f};
    _cleanup_strv_ char **plain = NULL;
    int r;

    if (s->unpack_urls) {
        r = context_add(&b->workspace, s, f.from, one, st->layers, n, &plain, err);
        if (r < 0)
            return r;
        f.sources = plain;
    }
    return f.sources ? workspace_run(&b->workspace, &job, err) : 0;
}

int step_files(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
               const struct add_downloads *downloads, unsigned n, struct err *err)
{
    int r;

    if (s->kind == DOCKERFILE_WORKDIR)
        return workspace_run(&b->workspace,
                             &(struct workspace_job){.n = n,
                                                     .layers = st->layers,
                                                     .mount_root = true,
                                                     .fn = step_files_do_workdir,
                                                     .arg = (void *)s},
                             err);
    r = step_files_copy_sources(b, st, s, n, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < s->n_urls; i++) {
        r = step_files_copy_download(b, st, downloads, i, n, err);
        if (r < 0)
            return r;
    }
    return step_files_copy_heredocs(b, st, s, n, err);
}
