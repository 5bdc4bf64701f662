#include "daemon/engine/docker/build-lines.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/build.h"
#include "image/dockerfile/dockerfile.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"

struct build_lines {
    struct dockerfile *df;
    char *target; /* owned, or NULL */
};

/* ---- reading the context ---- */

static ssize_t build_lines_read_tar(void *arg, void *data, size_t len)
{
    return fd_read_full(*(const int *)arg, data, len);
}

static const char *build_lines_without_dot(const char *path)
{
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    return path;
}

static int build_lines_read_text(struct tar_reader *tar, uint64_t size, struct buf *ret)
{
    char *p = size > DOCKERFILE_SIZE_MAX ? NULL : buf_reserve(ret, (size_t)size);

    while (p && ret->len < size) {
        ssize_t n = tar_read(tar, buf_data(ret) + ret->len, (size_t)size - ret->len, NULL);

        if (n <= 0)
            return -1;
        buf_commit(ret, (size_t)n);
    }
    return p ? 0 : -1;
}

/* Takes the first file of that name. A later one would replace it, but the CLI sends the Dockerfile
 * first, and reading the whole context takes long. */
static bool build_lines_find_text(const struct build_request *req, struct buf *ret)
{
    _cleanup_free_ struct tar_entry *entry = xnew0(struct tar_entry);
    struct tar_reader tar;
    int fd = req->context;

    tar_reader_init(&tar, build_lines_read_tar, &fd);
    while (tar_next(&tar, entry, NULL) > 0)
        if (entry->type == TAR_FILE &&
            STREQ(build_lines_without_dot(entry->path), build_lines_without_dot(req->dockerfile)))
            return build_lines_read_text(&tar, entry->size, ret) >= 0;
    return false;
}

struct build_lines *build_lines_new(const struct build_request *req)
{
    _cleanup_buf_ struct buf text = BUF_INIT(DOCKERFILE_SIZE_MAX + 1);
    struct dockerfile *df = NULL;
    bool found = build_lines_find_text(req, &text);
    struct build_lines *l;

    if (lseek(req->context, 0, SEEK_SET) < 0 || !found ||
        dockerfile_parse(buf_data(&text), text.len, &df, NULL, NULL) < 0)
        return NULL;
    l = xnew0(struct build_lines);
    l->df = df;
    l->target = req->target ? xstrdup(req->target) : NULL;
    return l;
}

void build_lines_free(struct build_lines *l)
{
    if (!l)
        return;
    dockerfile_free(l->df);
    free(l->target);
    free(l);
}

/* ---- counting ---- */

static bool build_lines_makes_layer(const struct dockerfile_instruction *in)
{
    return in->kind == DOCKERFILE_RUN || in->kind == DOCKERFILE_COPY ||
           in->kind == DOCKERFILE_ADD || in->kind == DOCKERFILE_WORKDIR;
}

static bool build_lines_counts_from(const struct build_lines *l, size_t stage)
{
    const struct dockerfile_stage *s = &l->df->stages[stage];
    const char *base = s->from->n_words ? s->from->words[0].text : "";

    return !STREQ(base, "scratch") && dockerfile_find_stage(l->df, base, stage) < 0;
}

static long build_lines_stage_of(const struct build_lines *l, const char *stage)
{
    const char *number = strncmp(stage, "stage-", 6) == 0 ? stage + 6 : NULL;
    uint64_t index;

    if (!*stage && l->target)
        stage = l->target;
    if (!*stage)
        return (long)l->df->n_stages - 1;
    if (number && parse_u64(number, 0, DOCKERFILE_STAGES_MAX, &index, NULL) >= 0)
        return index < l->df->n_stages ? (long)index : -1;
    return dockerfile_find_stage(l->df, stage, l->df->n_stages);
}

unsigned build_lines_find(const struct build_lines *l, const char *stage, unsigned n, unsigned of,
                          bool every)
{
    const struct dockerfile_instruction *found = NULL;
    const struct dockerfile_stage *s;
    long index = l ? build_lines_stage_of(l, stage) : -1;
    unsigned count = 0;

    if (index < 0)
        return 0;
    s = &l->df->stages[index];
    if ((every || build_lines_counts_from(l, (size_t)index)) && ++count == n)
        found = s->from;
    for (size_t i = s->first; i < s->last; i++) {
        const struct dockerfile_instruction *in = &l->df->instructions[i];

        if ((every || build_lines_makes_layer(in)) && ++count == n)
            found = in;
    }
    return found && count == of ? dockerfile_pos(l->df, found->at).line : 0;
}
