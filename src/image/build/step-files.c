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
    const char *from; /* folder of the build that the sources are in */
    char *const *sources;
    struct filter_want want;
    bool own; /* what is copied becomes root's, unless it is to be another's */
    int mode; /* of all of it, unless --chmod says another; -1: as it has */
};

/* In the child. */
static int step_files_run_files(void *arg, int dir, struct err *err)
{
    const struct files_job *f = arg;
    const struct build_plan_step *s = f->step;
    struct copy_job job = {
        .sources = f->sources, .want = f->want, .dest = s->dest, .mode = f->mode};
    _cleanup_close_ int from = -1, to = -1;
    int r = dir_open(dir, f->from, &from, err);

    if (r >= 0)
        r = dir_open(dir, "root", &to, err);
    if (r >= 0 && s->chown)
        r = copy_owner_find(to, s->chown, &job.owner, err);
    if (r < 0)
        return r;
    job.from = from;
    job.to = to;
    job.owner.given |= f->own;
    job.way = job.owner;
    job.way.given = true; /* root's, where nobody else's */
    if (s->chmod)
        job.mode = (int)strtol(s->chmod, NULL, 8) & 07777;
    return copy_files(&job, err);
}

static int step_files_run_workdir(void *arg, int dir, struct err *err)
{
    const struct build_plan_step *s = arg;
    struct copy_owner owner = {.given = true};
    _cleanup_close_ int root = -1, made = -1;
    int r = dir_open(dir, "root", &root, err);

    if (r >= 0 && s->user)
        r = copy_owner_find(root, s->user, &owner, err);
    return r < 0 ? r : copy_make_folder(root, s->workdir, &owner, &made, err);
}

/* Files that stand in the Dockerfile, put down to be copied like others. */
static int step_files_write_files(struct builder *b, const struct build_plan_step *s,
                                  char **ret_folder, char ***ret_names, struct err *err)
{
    int r = workspace_folder(&b->workspace, 0755, ret_folder, err);

    for (size_t i = 0; r >= 0 && i < s->n_files; i++) {
        const struct build_file *f = &s->files[i];
        _cleanup_free_ char *path = xasprintf("%s/%s", *ret_folder, f->name);

        if (strchr(f->name, '/'))
            return err_set(err, ERR_INVALID, "'%.64s' cannot be the name of a file", f->name);
        r = file_replace(b->workspace.dir, path, f->content, strlen(f->content), 0644, false, err);
        if (r >= 0 && fchmodat(b->workspace.dir, path, 0644, 0) < 0)
            r = err_sys(err, errno, "make file '%.64s'", f->name);
        strv_add(ret_names, f->name);
    }
    return r;
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
    r = step_files_write_files(b, s, &folder, &names, err);
    if (r < 0)
        return r;
    f.from = folder;
    f.sources = names;
    return workspace_run(&b->workspace,
                         &(struct workspace_job){.n = n,
                                                 .layers = st->layers,
                                                 .mount_root = true,
                                                 .fn = step_files_run_files,
                                                 .arg = &f},
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
        .n = n, .layers = st->layers, .mount_root = true, .fn = step_files_run_files, .arg = &f};
    _cleanup_strv_ char **from = NULL, **plain = NULL;
    int r = 0;

    if (!s->sources)
        return 0;
    if (elsewhere)
        r = builder_layers(b, &s->from, &from, err);
    job.from = from;
    if (r >= 0 && s->unpack) {
        r = context_add(&b->workspace, s, f.from, s->sources, st->layers, n, &plain, err);
        f.sources = plain;
    }
    return r < 0 || !f.sources ? r : workspace_run(&b->workspace, &job, err);
}

/* Nobody but its owner reads what came from a server, unless --chmod says so: as BuildKit has it.
 */
static int step_files_copy_fetched(struct builder *b, const struct builder_state *st,
                                   const struct add_downloads *fetched, size_t i, unsigned n,
                                   struct err *err)
{
    const struct build_plan_step *s = fetched->step;
    _cleanup_free_ char *name = sources_literal(s->urls[i].name);
    char *const one[] = {name, NULL};
    struct files_job f = {.step = s,
                          .from = fetched->files[i].folder,
                          .sources = one,
                          .want = {.exclude = s->exclude},
                          .own = true,
                          .mode = 0600};
    _cleanup_strv_ char **plain = NULL;
    int r = 0;

    if (s->unpack_urls) {
        r = context_add(&b->workspace, s, f.from, one, st->layers, n, &plain, err);
        f.sources = plain;
    }
    return r < 0 || !f.sources ? r
                               : workspace_run(&b->workspace,
                                               &(struct workspace_job){.n = n,
                                                                       .layers = st->layers,
                                                                       .mount_root = true,
                                                                       .fn = step_files_run_files,
                                                                       .arg = &f},
                                               err);
}

int step_files(struct builder *b, const struct builder_state *st, const struct build_plan_step *s,
               const struct add_downloads *f, unsigned n, struct err *err)
{
    int r;

    if (s->kind == DOCKERFILE_WORKDIR)
        return workspace_run(&b->workspace,
                             &(struct workspace_job){.n = n,
                                                     .layers = st->layers,
                                                     .mount_root = true,
                                                     .fn = step_files_run_workdir,
                                                     .arg = (void *)s},
                             err);
    r = step_files_copy_sources(b, st, s, n, err);
    for (size_t i = 0; r >= 0 && i < s->n_urls; i++)
        r = step_files_copy_fetched(b, st, f, i, n, err);
    return r < 0 ? r : step_files_copy_heredocs(b, st, s, n, err);
}
