#include "image/build/plan.h"

#include <ctype.h>
#include <string.h>

#include "image/build/add-source.h"
#include "image/build/agent.h"
#include "image/build/copy.h"
#include "image/build/filter.h"
#include "image/build/history.h"
#include "image/build/run-command.h"
#include "image/oci/digest.h"
#include "image/oci/reference.h"
#include "lib/base/buf.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

struct planner {
    struct build_plan *plan;
    size_t variables; /* run_command_count() */
    const struct dockerfile *df;
    char *const *agents;
    build_image_fn image;
    void *arg;
};

/* One instruction while it is planned. */
struct plan_instruction {
    struct planner *p;
    size_t stage;
    const struct dockerfile *df;
    const struct dockerfile_instruction *in;
    const struct dockerfile_config *c;
    size_t *ret_at;
    struct build_plan_step *step;
};

/* ---- release ---- */

static void build_plan_file_done(struct build_file *f)
{
    free(f->name);
    free(f->content);
}

static void build_plan_step_done(struct build_plan_step *s)
{
    char *const owned[] = {s->text,  s->user,  s->workdir,  s->dest,
                           s->chown, s->chmod, s->checksum, s->from.image};

    for (size_t i = 0; i < ARRAY_SIZE(owned); i++)
        free(owned[i]);
    strv_free(s->argv);
    strv_free(s->env);
    strv_free(s->written);
    strv_free(s->sources);
    strv_free(s->exclude);
    for (size_t i = 0; i < s->n_urls; i++) {
        free(s->urls[i].url);
        free(s->urls[i].name);
    }
    free(s->urls);
    for (size_t i = 0; i < s->n_mounts; i++) {
        mount_done(&s->mounts[i].m);
        free(s->mounts[i].from.image);
    }
    free(s->mounts);
    for (size_t i = 0; i < s->n_files; i++)
        build_plan_file_done(&s->files[i]);
    free(s->files);
    build_plan_file_done(&s->script);
}

void build_plan_done(struct build_plan *p)
{
    for (size_t i = 0; i < p->n_stages; i++) {
        struct build_stage *s = &p->stages[i];

        for (size_t k = 0; k < s->n_steps; k++)
            build_plan_step_done(&s->steps[k]);
        for (size_t k = 0; k < s->n_notes; k++)
            free(s->notes[k].text);
        free(s->notes);
        strv_free(s->args);
        free(s->steps);
        free(s->name);
        free(s->image);
    }
    free(p->stages);
    config_done(&p->config);
    *p = (struct build_plan){0};
}

bool build_is_from_elsewhere(const struct build_from *f)
{
    return f->stage >= 0 || f->image;
}

size_t build_stage_total(const struct build_stage *s)
{
    return s->n_steps + (s->base < 0);
}

/* ---- helpers ---- */

static int build_plan_refuse_with(const struct plan_instruction *t, size_t at, struct err *err,
                                  const char *what, const char *hint)
{
    *t->ret_at = at;
    err_set(err, ERR_UNSUPPORTED, "%s: not supported by the native builder", what);
    return err_hint(err, "%s", hint);
}

static int build_plan_refuse(const struct plan_instruction *t, size_t at, struct err *err,
                             const char *what)
{
    return build_plan_refuse_with(t, at, err, what, "Build it with `--engine docker`.");
}

static int build_plan_expand(const struct plan_instruction *t, const char *word, size_t at,
                             char **ret, struct err *err)
{
    *t->ret_at = at;
    return config_expand(t->c, t->df->escape, word, ret, err);
}

static size_t build_plan_flag_at(const struct dockerfile_instruction *in, const char *name)
{
    for (size_t i = in->n_flags; i-- > 0;)
        if (STREQ(in->flags[i].name, name))
            return in->flags[i].at;
    return in->at;
}

static bool build_plan_flag_is_on(const struct dockerfile_instruction *in, const char *name)
{
    const char *value = dockerfile_flag(in, name);

    return value && !STREQ(value, "false");
}

/* The instruction for display: each run of blanks becomes one space. */
static char *build_plan_one_line(const struct dockerfile_instruction *in)
{
    _cleanup_buf_ struct buf b = BUF_INIT(in->line.len + 64);
    bool gap = false;

    for (size_t i = 0; i < in->line.len; i++) {
        unsigned char c = (unsigned char)in->line.text[i];

        if (isspace(c) || c < ' ') {
            gap = true;
            continue;
        }
        if (gap && b.len)
            (void)!buf_append_c(&b, ' ');
        gap = false;
        (void)!buf_append_c(&b, (char)c);
    }
    return buf_steal(&b);
}

/* Resolves "..", "//" and "."; a slash at the end stays. */
static char *build_plan_absolute(const char *workdir, const char *path)
{
    _cleanup_free_ char *both = *path == '/' ? xstrdup(path) : xasprintf("%s/%s", workdir, path);
    size_t len = strlen(path);
    bool folder = !len || path[len - 1] == '/' || STREQ(path, ".") || STREQ(path, "..") ||
                  (len > 1 && STREQ(path + len - 2, "/.")) ||
                  (len > 2 && STREQ(path + len - 3, "/.."));
    _cleanup_strv_ char **parts = NULL;
    _cleanup_free_ char *joined = NULL;

    for (char *rest = both, *part; (part = strsep(&rest, "/"));) {
        if (STREQ(part, ".."))
            strv_pop(parts);
        else if (*part && !STREQ(part, "."))
            strv_add(&parts, part);
    }
    joined = strv_join(parts, "/");
    return xasprintf("/%s%s", joined, folder && *joined ? "/" : "");
}

static const char *build_plan_workdir_of(const struct dockerfile_config *c)
{
    return c->workdir && *c->workdir ? c->workdir : "/";
}

/* ---- /usr of image `host` ---- */

static const char usr_of_host[] = "files below /usr of a stage or image that is built on 'host'";
static const char take_from_host[] =
    "Copy the file with a command in a stage that is built FROM host: RUN cp /usr/… /opt/…";

static bool build_plan_is_usr(const char *path)
{
    path += strspn(path, "/");
    return strncmp(path, "usr", 3) == 0 && (!path[3] || path[3] == '/');
}

int build_refuse_usr(const char *what, struct err *err)
{
    err_set(err, ERR_UNSUPPORTED, "%.600s: /usr of 'host' is the machine's own and read-only",
            what);
    return err_hint(err, "Write to /opt, /srv or /home/agent, which belong to the image.");
}

static int build_plan_check_place(const struct plan_instruction *t, const char *path,
                                  struct err *err)
{
    _cleanup_free_ char *plain = build_plan_absolute("/", path), *what = NULL;

    if (!t->p->plan->stages[t->stage].on_host || !build_plan_is_usr(plain))
        return 0;
    *t->ret_at = t->in->words[t->in->n_words - 1].at;
    what = xasprintf("%s%s '%.200s'", dockerfile_kind_name(t->in->kind),
                     t->in->kind == DOCKERFILE_WORKDIR ? "" : " to", path);
    return build_refuse_usr(what, err);
}

/* ---- where files come from ---- */

static int build_plan_from(const struct plan_instruction *t, const char *from, size_t at,
                           struct build_from *ret, struct err *err)
{
    struct dockerfile_config unused = {0};
    int r;

    ret->stage = -1;
    if (!from || !*from)
        return 0;
    *t->ret_at = at;
    ret->stage = dockerfile_find_stage(t->p->df, from, t->stage);
    if (ret->stage >= 0) {
        ret->on_host = t->p->plan->stages[ret->stage].on_host;
        return 0;
    }
    if (STREQ(from, "scratch"))
        return build_plan_refuse_with(
            t, at, err, "files of 'scratch'",
            "Name a stage or an image; `ripcord image import` makes an image of an archive.");
    if (reference_is_host(from))
        return build_plan_refuse_with(t, at, err, "files of 'host'", take_from_host);
    r = t->p->image(t->p->arg, from, &unused, &ret->on_host, err);
    config_done(&unused);
    if (r < 0)
        return r;
    ret->image = xstrdup(from);
    return 0;
}

/* ---- RUN ---- */

static const char secrets_folder[] = "/run/secrets/";

bool build_is_secrets_place(const char *target)
{
    size_t len = strlen(secrets_folder);

    return strncmp(target, secrets_folder, len) == 0 && !strchr(target + len, '/') &&
           parse_secret_name(target + len, NULL) >= 0;
}

static int build_plan_check_mount(const struct plan_instruction *t,
                                  const struct dockerfile_mount *m, size_t at, struct err *err)
{
    /* Sandboxes have only these ids; COPY --chown has the same limit. */
    if (mount_number(m->uid, 10, 0) > COPY_ID_MAX || mount_number(m->gid, 10, 0) > COPY_ID_MAX)
        return build_plan_refuse(t, at, err, "a uid or gid over 65535 in '--mount'");
    if (m->type == MOUNT_SSH && m->source)
        return err_set(err, ERR_INVALID, "--mount=type=ssh: 'source' is not allowed");
    if (m->type == MOUNT_SSH && m->required && !strv_env_get(t->p->agents, agent_id(m))) {
        *t->ret_at = at;
        err_set(err, ERR_INVALID, "'--mount=type=ssh': ssh agent '%.64s' was not given",
                agent_id(m));
        return err_hint(err, "Give it with `image build --ssh %.64s`.", agent_id(m));
    }
    if (m->type == MOUNT_TMPFS && m->size)
        return build_plan_refuse(t, at, err, "the size of a tmpfs in '--mount'");
    if (m->type == MOUNT_CACHE && (m->from || m->source))
        return build_plan_refuse(t, at, err,
                                 "a cache mount with initial contents ('from', 'source')");
    /* The folder of secrets is a read-only mount, so nothing else can be mounted below it. */
    if (m->type == MOUNT_SECRET && m->target &&
        strncmp(m->target, secrets_folder, strlen(secrets_folder)) == 0 &&
        !build_is_secrets_place(m->target))
        return build_plan_refuse(t, at, err, "a secret in a subfolder of '/run/secrets'");
    return 0;
}

static int build_plan_mount(const struct plan_instruction *t, const char *value, size_t at,
                            struct err *err)
{
    struct build_plan_step *s = t->step;
    _cleanup_free_ char *plain = NULL;
    struct build_mount *m;
    int r = build_plan_expand(t, value, at, &plain, err);

    if (r < 0)
        return r;
    s->mounts = xreallocarray(s->mounts, s->n_mounts + 1, sizeof(*s->mounts));
    m = &s->mounts[s->n_mounts];
    *m = (struct build_mount){.from = {.stage = -1}};
    r = mount_parse(plain, false, &m->m, err);
    if (r < 0)
        return r;
    s->n_mounts++;
    r = build_plan_check_mount(t, &m->m, at, err);
    if (r < 0)
        return r;
    r = build_plan_from(t, m->m.from, at, &m->from, err);
    if (r < 0)
        return r;
    if (m->from.on_host && m->m.source && build_plan_is_usr(m->m.source))
        return build_plan_refuse_with(t, at, err, usr_of_host, take_from_host);
    return 0;
}

static size_t build_plan_count_ssh(const struct build_plan_step *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_mounts; i++)
        n += s->mounts[i].m.type == MOUNT_SSH;
    return n;
}

/* Sets the default target or makes the given one absolute. */
static int build_plan_place_mount(const struct plan_instruction *t, struct build_mount *b,
                                  struct err *err)
{
    struct dockerfile_mount *m = &b->m;
    char *target;

    if (m->type == MOUNT_SSH && !m->target)
        m->target = xasprintf("/run/buildkit/ssh_agent.%zu", build_plan_count_ssh(t->step) - 1);

    if (m->type == MOUNT_SECRET && !m->target)
        return 0;
    if (!m->target || !*m->target)
        return err_set(err, ERR_INVALID, "--mount=type=%s: 'target' is missing",
                       mount_type_name(m->type));
    target = build_plan_absolute(build_plan_workdir_of(t->c), m->target);
    free(m->target);
    m->target = target;
    if (STREQ(target, "/"))
        return err_set(err, ERR_INVALID, "--mount: target '/' would hide the image");
    if (target[strlen(target) - 1] == '/')
        target[strlen(target) - 1] = '\0';
    return 0;
}

static int build_plan_mounts(const struct plan_instruction *t, struct err *err)
{
    for (size_t i = 0; i < t->in->n_flags; i++) {
        const struct dockerfile_flag *f = &t->in->flags[i];
        int r;

        if (!STREQ(f->name, "mount"))
            continue;
        r = build_plan_mount(t, f->value, f->at, err);
        if (r < 0)
            return r;
        r = build_plan_place_mount(t, &t->step->mounts[t->step->n_mounts - 1], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Sets SSH_AUTH_SOCK, as BuildKit does, even where no agent was given and nothing is mounted. */
static void build_plan_set_agent_env(struct build_plan_step *s)
{
    if (strv_env_get(s->env, "SSH_AUTH_SOCK"))
        return;
    for (size_t i = 0; i < s->n_mounts; i++)
        if (s->mounts[i].m.type == MOUNT_SSH) {
            strv_env_set(&s->env, "SSH_AUTH_SOCK", s->mounts[i].m.target);
            return;
        }
}

static int build_plan_run_flags(const struct plan_instruction *t, struct err *err)
{
    const char *network = dockerfile_flag(t->in, "network");
    const char *security = dockerfile_flag(t->in, "security");

    if (network && STREQ(network, "host"))
        return build_plan_refuse_with(
            t, build_plan_flag_at(t->in, "network"), err, "'--network=host'",
            "Use `image build --network open` for a step that needs the internet.");
    if (network && STREQ(network, "none"))
        t->step->network = BUILD_NETWORK_NONE;
    if (security && STREQ(security, "insecure"))
        return build_plan_refuse(t, build_plan_flag_at(t->in, "security"), err,
                                 "'--security=insecure'");
    if (dockerfile_flag(t->in, "device"))
        return build_plan_refuse(t, build_plan_flag_at(t->in, "device"), err, "'--device'");
    return build_plan_mounts(t, err);
}

/* RUN <<EOF is a script: for the interpreter in its "#!" line, or else for the shell. */
static void build_plan_script(const struct plan_instruction *t)
{
    const struct dockerfile_heredoc *h = &t->in->heredocs[0];
    _cleanup_free_ char *content = run_command_heredoc(h);
    struct build_plan_step *s = t->step;

    if (strncmp(content, "#!", 2) != 0) {
        s->argv = run_command_shell(t->c);
        strv_push(&s->argv, TAKE_PTR(content));
        return;
    }
    s->script = (struct build_file){xstrdup(h->name), TAKE_PTR(content)};
    strv_push(&s->argv, xasprintf(BUILD_SCRIPT_DIR "/%s", h->name));
}

static int build_plan_run_env(const struct plan_instruction *t, struct err *err)
{
    int r = run_command_count(&t->p->variables, t->c->scope, err);

    if (r < 0)
        return r;
    t->step->env = strv_copy(t->c->scope);
    build_plan_set_agent_env(t->step);
    return 0;
}

static int build_plan_run_command(const struct plan_instruction *t, struct err *err)
{
    struct build_plan_step *s = t->step;

    if (t->in->json) {
        for (size_t i = 0; i < t->in->n_words; i++)
            strv_add(&s->argv, t->in->words[i].text);
        return s->argv ? 0 : err_set(err, ERR_INVALID, "RUN []: the command is missing");
    }
    if (t->in->n_heredocs == 1 && strncmp(t->in->words[0].text, "<<", 2) == 0 &&
        !strpbrk(t->in->words[0].text, " \t|;&>")) { /* nothing but the heredoc */
        build_plan_script(t);
        return 0;
    }
    s->argv = run_command_shell(t->c);
    strv_push(&s->argv, run_command_text(t->in));
    return 0;
}

static int build_plan_run(const struct plan_instruction *t, struct err *err)
{
    int r = build_plan_run_flags(t, err);

    if (r < 0)
        return r;
    r = build_plan_run_env(t, err);
    if (r < 0)
        return r;
    r = build_plan_run_command(t, err);
    return r < 0 ? r : run_command_check(t->step->argv, t->step->env, err);
}

/* ---- COPY and ADD ---- */

static int build_plan_file(const struct plan_instruction *t, const struct dockerfile_heredoc *h,
                           struct err *err)
{
    struct build_plan_step *s = t->step;
    _cleanup_free_ char *content = run_command_heredoc(h), *expanded = NULL;
    int r;

    if (h->expand) {
        r = build_plan_expand(t, content, h->at, &expanded, err);
        if (r < 0)
            return r;
    }
    s->files = xreallocarray(s->files, s->n_files + 1, sizeof(*s->files));
    s->files[s->n_files++] =
        (struct build_file){xstrdup(h->name), expanded ? TAKE_PTR(expanded) : TAKE_PTR(content)};
    return 0;
}

static int build_plan_url(struct build_plan_step *s, const char *url, struct err *err)
{
    char *name;
    int r = add_source_file_name(url, &name, err);

    if (r < 0)
        return r;
    s->urls = xreallocarray(s->urls, s->n_urls + 1, sizeof(*s->urls));
    s->urls[s->n_urls++] = (struct build_url){xstrdup(url), name};
    return 0;
}

static int build_plan_source(const struct plan_instruction *t, const struct dockerfile_word *w,
                             struct err *err)
{
    struct build_plan_step *s = t->step;
    enum add_source_kind kind;
    char *source;
    int r;

    if (t->in->n_heredocs && strncmp(w->text, "<<", 2) == 0)
        return 0;
    r = build_plan_expand(t, w->text, w->at, &source, err);
    if (r < 0)
        return r;
    strv_push(&s->written, source);
    kind = t->in->kind == DOCKERFILE_ADD ? add_source_kind(source) : ADD_SOURCE_PATH;
    if (kind == ADD_SOURCE_GIT)
        return build_plan_refuse_with(
            t, w->at, err, "ADD of git repositories",
            "Clone it before the build and COPY it, or clone it in a RUN with `image build "
            "--network open`, or build with `--engine docker`.");
    if (kind == ADD_SOURCE_PATH && s->from.on_host && build_plan_is_usr(source))
        return build_plan_refuse_with(t, w->at, err, usr_of_host, take_from_host);
    if (kind == ADD_SOURCE_PATH) {
        strv_add(&s->sources, source);
        return 0;
    }
    return build_plan_url(s, source, err);
}

static int build_plan_chmod(const struct plan_instruction *t, struct err *err)
{
    const char *given = dockerfile_flag(t->in, "chmod");
    struct build_plan_step *s = t->step;
    int r;

    if (!given)
        return 0;
    r = build_plan_expand(t, given, build_plan_flag_at(t->in, "chmod"), &s->chmod, err);
    if (r < 0)
        return r;
    if (!*s->chmod || strspn(s->chmod, "01234567") != strlen(s->chmod) || strlen(s->chmod) > 5)
        return build_plan_refuse(t, build_plan_flag_at(t->in, "chmod"), err,
                                 "modes that are not octal");
    return 0;
}

/* Patterns are not expanded, as in BuildKit. */
static int build_plan_excludes(const struct plan_instruction *t, struct err *err)
{
    for (size_t i = 0; i < t->in->n_flags; i++)
        if (STREQ(t->in->flags[i].name, "exclude") && t->in->flags[i].value)
            strv_add(&t->step->exclude, t->in->flags[i].value);
    *t->ret_at = build_plan_flag_at(t->in, "exclude");
    return filter_check(t->step->exclude, err);
}

static int build_plan_copy_flags(const struct plan_instruction *t, struct err *err)
{
    static const char *const unknown[] = {"keep-git-dir"};
    const char *chown = dockerfile_flag(t->in, "chown");
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
        if (dockerfile_flag(t->in, unknown[i])) {
            _cleanup_free_ char *flag = xasprintf("'--%s'", unknown[i]);

            return build_plan_refuse(t, build_plan_flag_at(t->in, unknown[i]), err, flag);
        }
    if (chown) {
        r = build_plan_expand(t, chown, build_plan_flag_at(t->in, "chown"), &t->step->chown, err);
        if (r < 0)
            return r;
    }
    r = build_plan_chmod(t, err);
    if (r < 0)
        return r;
    r = build_plan_excludes(t, err);
    if (r < 0)
        return r;
    t->step->parents = build_plan_flag_is_on(t->in, "parents");
    t->step->unpack = t->in->kind == DOCKERFILE_ADD &&
                      (!dockerfile_flag(t->in, "unpack") || build_plan_flag_is_on(t->in, "unpack"));
    t->step->unpack_urls = build_plan_flag_is_on(t->in, "unpack");
    return build_plan_from(t, dockerfile_flag(t->in, "from"), build_plan_flag_at(t->in, "from"),
                           &t->step->from, err);
}

/* As in BuildKit, an ADD with a checksum has exactly one source, a URL. */
static int build_plan_checksum(const struct plan_instruction *t, struct err *err)
{
    const char *given = dockerfile_flag(t->in, "checksum");
    struct build_plan_step *s = t->step;
    int r;

    if (!given)
        return 0;
    r = build_plan_expand(t, given, build_plan_flag_at(t->in, "checksum"), &s->checksum, err);
    if (r < 0)
        return r;
    if (strv_len(s->written) + s->n_files != 1 || s->n_urls != 1)
        return err_set(err, ERR_INVALID,
                       "--checksum: ADD must have exactly one source, an http(s) URL");
    if (digest_is_valid(s->checksum))
        return 0;
    if (strchr(s->checksum, ':') && strncmp(s->checksum, "sha256:", 7) != 0)
        return build_plan_refuse(t, build_plan_flag_at(t->in, "checksum"), err,
                                 "checksums other than sha256");
    err_set(err, ERR_INVALID, "--checksum '%.100s': not a sha256 digest", s->checksum);
    return err_hint(err, "Write 'sha256:' and 64 lower-case hexadecimal digits.");
}

static int build_plan_check_dest(const struct plan_instruction *t, const char *dest,
                                 struct err *err)
{
    const struct build_plan_step *s = t->step;

    if (strv_len(s->written) + s->n_files <= 1 || s->parents || s->dest[strlen(s->dest) - 1] == '/')
        return 0;
    *t->ret_at = t->in->words[t->in->n_words - 1].at;
    err_set(err, ERR_INVALID, "%s of several files: '%.200s' must end with a slash",
            dockerfile_kind_name(t->in->kind), dest);
    return err_hint(err, "Write '%.200s/'.", dest);
}

static int build_plan_copy(const struct plan_instruction *t, struct err *err)
{
    const struct dockerfile_word *last = &t->in->words[t->in->n_words - 1];
    _cleanup_free_ char *dest = NULL;
    int r = build_plan_copy_flags(t, err);

    if (r < 0)
        return r;
    for (size_t i = 0; i + 1 < t->in->n_words; i++) {
        r = build_plan_source(t, &t->in->words[i], err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < t->in->n_heredocs; i++) {
        r = build_plan_file(t, &t->in->heredocs[i], err);
        if (r < 0)
            return r;
    }
    r = build_plan_checksum(t, err);
    if (r < 0)
        return r;
    r = build_plan_expand(t, last->text, last->at, &dest, err);
    if (r < 0)
        return r;
    t->step->dest = build_plan_absolute(build_plan_workdir_of(t->c), dest);
    r = build_plan_check_dest(t, dest, err);
    if (r < 0)
        return r;
    return build_plan_check_place(t, t->step->dest, err);
}

/* ---- the walk ---- */

static int build_plan_step(const struct plan_instruction *t, struct err *err)
{
    struct build_plan_step *s = t->step;
    size_t dest;

    s->kind = t->in->kind;
    s->text = build_plan_one_line(t->in);
    s->line = dockerfile_pos(t->p->df, *t->ret_at).line;
    s->user = t->c->user && *t->c->user ? xstrdup(t->c->user) : NULL;
    s->workdir = xstrdup(build_plan_workdir_of(t->c));
    s->from.stage = -1;
    if (t->in->kind == DOCKERFILE_RUN)
        return build_plan_run(t, err);
    /* Instructions of an ONBUILD trigger are in another text; errors point at the FROM instead. */
    dest = t->df == t->p->df ? t->in->words[t->in->n_words - 1].at
                             : t->p->df->stages[t->stage].from->at;
    s->dest_at = dockerfile_pos(t->p->df, dest);
    return t->in->kind == DOCKERFILE_WORKDIR ? build_plan_check_place(t, s->workdir, err)
                                             : build_plan_copy(t, err);
}

static bool build_plan_is_step(enum dockerfile_kind kind)
{
    return kind == DOCKERFILE_RUN || kind == DOCKERFILE_COPY || kind == DOCKERFILE_ADD ||
           kind == DOCKERFILE_WORKDIR;
}

static void build_plan_note_args(struct build_stage *st, const struct dockerfile_instruction *in)
{
    for (size_t i = 0; i < in->n_words; i++) {
        const char *word = in->words[i].text;
        _cleanup_free_ char *name = xstrndup(word, strcspn(word, "="));

        if (!strv_contains(st->args, name))
            strv_push(&st->args, TAKE_PTR(name));
    }
}

/* When the history becomes too long, a line has only the name of its instruction. */
static void build_plan_add_note(const struct plan_instruction *t)
{
    struct build_plan *p = t->p->plan;
    struct build_stage *st = &p->stages[t->stage];
    char *text;

    if (t->in->kind == DOCKERFILE_ARG)
        build_plan_note_args(st, t->in);
    text = history_text(t->df, t->in, t->c, t->step, st->args);
    if (!text)
        return;
    if (p->noted + strlen(text) > HISTORY_MAX) {
        free(text);
        text = xstrdup(dockerfile_kind_name(t->in->kind));
    }
    p->noted += strlen(text);
    st->notes = xreallocarray(st->notes, st->n_notes + 1, sizeof(*st->notes));
    st->notes[st->n_notes++] = (struct build_note){text, t->step ? (long)st->n_steps : -1};
}

static int build_plan_on_step(void *arg, size_t stage, const struct dockerfile *df,
                              const struct dockerfile_instruction *in,
                              const struct dockerfile_config *c, size_t *ret_at, struct err *err)
{
    struct planner *p = arg;
    struct build_stage *st = &p->plan->stages[stage];
    struct plan_instruction t = {p, stage, df, in, c, ret_at, NULL};
    struct build_plan_step step = {0};
    int r;

    if (!build_plan_is_step(in->kind)) {
        build_plan_add_note(&t);
        return 0;
    }
    t.step = &step;
    r = build_plan_step(&t, err);
    if (r < 0) {
        build_plan_step_done(&step);
        return r;
    }
    build_plan_add_note(&t);
    st->steps = xreallocarray(st->steps, st->n_steps + 1, sizeof(*st->steps));
    st->steps[st->n_steps++] = step;
    return 0;
}

static int build_plan_on_stage(void *arg, size_t stage, long base, const char *image,
                               struct err *err)
{
    struct planner *p = arg;
    const struct dockerfile_stage *from = &p->df->stages[stage];
    struct build_stage *st = &p->plan->stages[stage];
    const char *platform = dockerfile_flag(from->from, "platform");

    st->needed = true;
    st->base = base;
    st->on_host = base >= 0 && p->plan->stages[base].on_host;
    st->name = from->name ? xstrdup(from->name) : xasprintf("stage-%zu", stage);
    st->image = image ? xstrdup(image) : NULL;
    st->args =
        base >= 0 && p->plan->stages[base].args ? strv_copy(p->plan->stages[base].args) : NULL;
    if (platform && !strchr(platform, '$') && !STREQ(platform, "linux/amd64") &&
        !STREQ(platform, "linux")) {
        err_set(err, ERR_UNSUPPORTED, "FROM --platform=%.64s: not supported by the native builder",
                platform);
        return err_hint(err, "Use linux/amd64: it builds only for the machine's own platform.");
    }
    return 0;
}

static int build_plan_on_image(void *arg, size_t stage, const char *name,
                               struct dockerfile_config *ret, struct err *err)
{
    struct planner *p = arg;

    return p->image(p->arg, name, ret, &p->plan->stages[stage].on_host, err);
}

int build_plan_make(const struct dockerfile *df, const struct config_inputs *inputs,
                    char *const *agents, build_image_fn image, void *arg, struct build_plan *ret,
                    struct err *err)
{
    static const struct config_visitor visitor = {build_plan_on_image, build_plan_on_stage,
                                                  build_plan_on_step};
    struct build_plan plan = {.n_stages = df->n_stages};
    struct planner p = {.plan = &plan, .df = df, .agents = agents, .image = image, .arg = arg};
    int r;

    plan.stages = xcalloc(df->n_stages, sizeof(*plan.stages));
    r = config_walk(df, inputs, &visitor, &p, &plan.config, &plan.target, err);
    if (r < 0) {
        build_plan_done(&plan);
        return r;
    }
    *ret = plan;
    return 0;
}
