#include "image/dockerfile/check.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "image/dockerfile/duration.h"
#include "image/dockerfile/heredoc.h"
#include "image/dockerfile/word.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* ---- flags ---- */

enum flag_type { FLAG_BOOL, FLAG_VALUE, FLAG_VALUES };

/* clang-format off */
static const struct {
    enum dockerfile_kind kind;
    const char *name;
    enum flag_type type;
} flags[] = {
    {DOCKERFILE_ADD, "chown", FLAG_VALUE}, {DOCKERFILE_ADD, "chmod", FLAG_VALUE},
    {DOCKERFILE_ADD, "link", FLAG_BOOL}, {DOCKERFILE_ADD, "keep-git-dir", FLAG_BOOL},
    {DOCKERFILE_ADD, "checksum", FLAG_VALUE}, {DOCKERFILE_ADD, "unpack", FLAG_BOOL},
    {DOCKERFILE_ADD, "exclude", FLAG_VALUES},
    {DOCKERFILE_COPY, "chown", FLAG_VALUE}, {DOCKERFILE_COPY, "chmod", FLAG_VALUE},
    {DOCKERFILE_COPY, "from", FLAG_VALUE}, {DOCKERFILE_COPY, "link", FLAG_BOOL},
    {DOCKERFILE_COPY, "parents", FLAG_BOOL}, {DOCKERFILE_COPY, "exclude", FLAG_VALUES},
    {DOCKERFILE_FROM, "platform", FLAG_VALUE},
    {DOCKERFILE_HEALTHCHECK, "interval", FLAG_VALUE}, {DOCKERFILE_HEALTHCHECK, "timeout", FLAG_VALUE},
    {DOCKERFILE_HEALTHCHECK, "start-period", FLAG_VALUE},
    {DOCKERFILE_HEALTHCHECK, "start-interval", FLAG_VALUE},
    {DOCKERFILE_HEALTHCHECK, "retries", FLAG_VALUE},
    {DOCKERFILE_RUN, "mount", FLAG_VALUES}, {DOCKERFILE_RUN, "network", FLAG_VALUE},
    {DOCKERFILE_RUN, "security", FLAG_VALUE}, {DOCKERFILE_RUN, "device", FLAG_VALUES},
};
/* clang-format on */

/* BuildKit reads no flags of these instructions and skips words that look like flags. */
static bool check_ignores_flags(const struct dockerfile_instruction *in)
{
    return in->kind == DOCKERFILE_ARG || in->kind == DOCKERFILE_STOPSIGNAL ||
           (in->kind == DOCKERFILE_HEALTHCHECK && in->n_words &&
            !strcasecmp(in->words[0].text, "NONE"));
}

static int check_find_flag(const struct dockerfile_instruction *in, const char *name,
                           enum flag_type *ret, struct err *err)
{
    const char *names[ARRAY_SIZE(flags)], *near, *of = dockerfile_kind_name(in->kind);
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (flags[i].kind != in->kind)
            continue;
        names[n++] = flags[i].name;
        if (STREQ(flags[i].name, name)) {
            *ret = flags[i].type;
            return 0;
        }
    }
    near = strv_nearest(name, names, n);
    err_set(err, ERR_INVALID, "%s: unknown flag '--%s'", of, name);
    return near ? err_hint(err, "Did you mean '--%s'?", near) : -ERR_INVALID;
}

static int check_flag(const struct dockerfile_instruction *in, size_t i, struct err *err)
{
    const struct dockerfile_flag *f = &in->flags[i];
    enum flag_type type = FLAG_BOOL;
    int r = check_find_flag(in, f->name, &type, err);

    if (r < 0)
        return r;
    for (size_t k = 0; k < i && type != FLAG_VALUES; k++)
        if (STREQ(in->flags[k].name, f->name))
            return err_set(err, ERR_INVALID, "'--%s' is given twice", f->name);
    if (type != FLAG_BOOL)
        return f->value ? 0 : err_set(err, ERR_INVALID, "'--%s' needs a value", f->name);
    if (!f->value || !strcasecmp(f->value, "true") || !strcasecmp(f->value, "false"))
        return 0;
    return *f->value ? err_set(err, ERR_INVALID, "'--%s' must be true or false, not '%s'", f->name,
                               f->value)
                     : err_set(err, ERR_INVALID, "'--%s=' has no value", f->name);
}

static int check_flags(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    for (size_t i = 0; i < in->n_flags && !check_ignores_flags(in); i++) {
        int r = check_flag(in, i, err);

        if (r < 0) {
            *ret_at = in->flags[i].at;
            return r;
        }
    }
    return 0;
}

/* ---- number of arguments ---- */

/* clang-format off */
static const struct {
    unsigned min, max; /* max 0: any number */
} counts[] = {
    [DOCKERFILE_ADD] = {2, 0}, [DOCKERFILE_ARG] = {1, 0}, [DOCKERFILE_CMD] = {0, 0},
    [DOCKERFILE_COPY] = {2, 0}, [DOCKERFILE_ENTRYPOINT] = {0, 0}, [DOCKERFILE_ENV] = {1, 0},
    [DOCKERFILE_EXPOSE] = {1, 0}, [DOCKERFILE_FROM] = {1, 3}, [DOCKERFILE_HEALTHCHECK] = {1, 0},
    [DOCKERFILE_LABEL] = {1, 0}, [DOCKERFILE_MAINTAINER] = {1, 1}, [DOCKERFILE_ONBUILD] = {0, 0},
    [DOCKERFILE_RUN] = {0, 0}, [DOCKERFILE_SHELL] = {1, 0}, [DOCKERFILE_STOPSIGNAL] = {1, 1},
    [DOCKERFILE_USER] = {1, 1}, [DOCKERFILE_VOLUME] = {1, 0}, [DOCKERFILE_WORKDIR] = {1, 1},
};
/* clang-format on */

static int check_count(const struct dockerfile_instruction *in, struct err *err)
{
    const char *name = dockerfile_kind_name(in->kind);

    if (in->n_words >= counts[in->kind].min)
        return 0;
    if (counts[in->kind].min == 2)
        return err_set(err, ERR_INVALID, "%s needs a source and a destination", name);
    return err_set(err, ERR_INVALID, "%s needs %s argument", name,
                   counts[in->kind].max == 1 ? "exactly one" : "at least one");
}

/* ---- by kind; on entry *ret_at is the position of the instruction ---- */

static int check_pairs(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    for (size_t i = 0; i < in->n_words; i += 2)
        if (!*in->words[i].text) {
            *ret_at = in->words[i].at;
            return err_set(err, ERR_INVALID, "%s: empty name", dockerfile_kind_name(in->kind));
        }
    return 0;
}

static int check_arg(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    for (size_t i = 0; i < in->n_words; i++)
        if (*in->words[i].text == '=') {
            *ret_at = in->words[i].at;
            return err_set(err, ERR_INVALID, "ARG: empty name");
        }
    return 0;
}

static bool check_stage_name_is_valid(const char *s)
{
    if (!isalpha((unsigned char)*s))
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("-_.", *s))
            return false;
    return true;
}

static int check_from(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    if (in->n_words == 1)
        return 0;
    *ret_at = in->words[1].at;
    if (in->n_words != 3 || strcasecmp(in->words[1].text, "as") != 0) {
        err_set(err, ERR_INVALID, "FROM takes one or three arguments");
        return err_hint(err, "Write FROM IMAGE, or FROM IMAGE AS NAME.");
    }
    *ret_at = in->words[2].at;
    if (check_stage_name_is_valid(in->words[2].text))
        return 0;
    err_set(err, ERR_INVALID, "'%.64s' is not a valid stage name", in->words[2].text);
    return err_hint(err, "Begin with a letter, then use letters, digits, '-', '_' and '.'.");
}

static int check_copy(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    const struct dockerfile_word *last = &in->words[in->n_words - 1];

    if (!heredoc_is_mark(last->text, NULL))
        return 0;
    *ret_at = last->at;
    return err_set(err, ERR_INVALID, "%s: a heredoc cannot be the destination",
                   dockerfile_kind_name(in->kind));
}

static int check_volume(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    for (size_t i = 0; i < in->n_words; i++) {
        size_t start = 0, end = strlen(in->words[i].text);

        word_trim(in->words[i].text, &start, &end);
        if (start == end) {
            *ret_at = in->words[i].at;
            return err_set(err, ERR_INVALID, "VOLUME: empty path");
        }
    }
    return 0;
}

static int check_shell(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    if (in->json)
        return 0;
    *ret_at = in->words[0].at;
    err_set(err, ERR_INVALID, "SHELL needs the exec form");
    return err_hint(err, "Write SHELL [\"/bin/sh\", \"-c\"].");
}

static int check_health_flag(const struct dockerfile_flag *f, struct err *err)
{
    uint32_t n;
    int64_t ns;
    int r;

    if (!*f->value)
        return 0;
    if (STREQ(f->name, "retries")) {
        if (*f->value == '-' && parse_u32(f->value + 1, 0, 1u << 31, &n, NULL) >= 0)
            return err_set(err, ERR_INVALID, "'--retries' cannot be negative");
        return parse_u32(f->value + (*f->value == '+'), 0, 0x7fffffff, &n, err);
    }
    r = duration_parse(f->value, &ns, err);
    if (r < 0)
        return r;
    if (ns != 0 && ns < DURATION_MILLISECOND)
        return err_set(err, ERR_INVALID, "'--%s' must be at least 1ms", f->name);
    return 0;
}

static int check_health(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    const char *type = in->words[0].text;

    *ret_at = in->words[0].at;
    if (!strcasecmp(type, "NONE"))
        return in->n_words == 1 ? 0
                                : err_set(err, ERR_INVALID, "HEALTHCHECK NONE takes no arguments");
    if (strcasecmp(type, "CMD") != 0)
        return err_set(err, ERR_INVALID, "HEALTHCHECK must be CMD or NONE, not '%.32s'", type);
    if (in->n_words < 2)
        return err_set(err, ERR_INVALID, "HEALTHCHECK CMD has no command");
    for (size_t i = 0; i < in->n_flags; i++) {
        int r = check_health_flag(&in->flags[i], err);

        if (r < 0) {
            *ret_at = in->flags[i].at;
            return r;
        }
    }
    return 0;
}

static int check_mode(const struct dockerfile_flag *f, const char *const *words, struct err *err)
{
    for (; *words; words++)
        if (STREQ(*words, f->value))
            return 0;
    return err_set(err, ERR_INVALID, "invalid '--%s=%s'", f->name, f->value);
}

static int check_run_flag(struct dockerfile_instruction *in, const struct dockerfile_flag *f,
                          struct err *err)
{
    static const char *const networks[] = {"default", "none", "host", NULL};
    static const char *const securities[] = {"sandbox", "insecure", NULL};
    struct dockerfile_mount *m = &in->mounts[in->n_mounts];
    int r;

    if (STREQ(f->name, "network"))
        return check_mode(f, networks, err);
    if (STREQ(f->name, "security"))
        return check_mode(f, securities, err);
    if (!STREQ(f->name, "mount"))
        return 0;
    r = mount_parse(f->value, true, m, err);
    if (r < 0)
        return r;
    m->at = f->at;
    m->end = f->end;
    in->n_mounts++;
    return 0;
}

static int check_run(struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    in->mounts = in->n_flags ? xcalloc(in->n_flags, sizeof(*in->mounts)) : NULL;
    for (size_t i = 0; i < in->n_flags; i++) {
        int r;

        *ret_at = in->flags[i].at;
        r = check_run_flag(in, &in->flags[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int check_trigger(const struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    enum dockerfile_kind kind;

    if (!in->trigger)
        return err_set(err, ERR_INVALID, "ONBUILD needs at least one argument");
    kind = in->trigger->kind;
    *ret_at = in->trigger->at;
    if (kind != DOCKERFILE_ONBUILD && kind != DOCKERFILE_FROM && kind != DOCKERFILE_MAINTAINER)
        return 0;
    return err_set(err, ERR_INVALID, "ONBUILD cannot trigger %s", dockerfile_kind_name(kind));
}

static int check_kind(struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    switch (in->kind) {
    case DOCKERFILE_ADD:
    case DOCKERFILE_COPY:
        return check_copy(in, ret_at, err);
    case DOCKERFILE_ARG:
        return check_arg(in, ret_at, err);
    case DOCKERFILE_ENV:
    case DOCKERFILE_LABEL:
        return check_pairs(in, ret_at, err);
    case DOCKERFILE_FROM:
        return check_from(in, ret_at, err);
    case DOCKERFILE_HEALTHCHECK:
        return check_health(in, ret_at, err);
    case DOCKERFILE_ONBUILD:
        return check_trigger(in, ret_at, err);
    case DOCKERFILE_RUN:
        return check_run(in, ret_at, err);
    case DOCKERFILE_SHELL:
        return check_shell(in, ret_at, err);
    case DOCKERFILE_VOLUME:
        return check_volume(in, ret_at, err);
    case DOCKERFILE_CMD:
    case DOCKERFILE_ENTRYPOINT:
    case DOCKERFILE_EXPOSE:
    case DOCKERFILE_MAINTAINER:
    case DOCKERFILE_STOPSIGNAL:
    case DOCKERFILE_USER:
    case DOCKERFILE_WORKDIR:
        break;
    }
    return 0;
}

int check_instruction(struct dockerfile_instruction *in, size_t *ret_at, struct err *err)
{
    int r;

    *ret_at = in->at;
    r = check_count(in, err);
    if (r < 0)
        return r;
    r = check_flags(in, ret_at, err);
    if (r < 0)
        return r;
    return check_kind(in, ret_at, err);
}
