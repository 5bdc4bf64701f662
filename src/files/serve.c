#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "files/job.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum {
    FILES_CPU_SEC = 300,
    FILES_SEARCH_SEC = 30,
    FILES_TICKS = 256, /* steps between two looks at the daemon and the clock */
    FILES_READ_SIZE = 256 << 10,
};

#define FILES_MEMORY ((rlim_t)256 << 20)

static int (*const runs[FILES_OP_END])(struct files_task *j, struct err *err) = {
    [FILES_READ] = files_read,   [FILES_WRITE] = files_write, [FILES_STAT] = files_stat,
    [FILES_LIST] = files_list,   [FILES_MKDIR] = files_mkdir, [FILES_REMOVE] = files_remove,
    [FILES_MOVE] = files_move,   [FILES_COPY] = files_copy,   [FILES_CHMOD] = files_chmod,
    [FILES_FIND] = files_find,   [FILES_GREP] = files_grep,   [FILES_EDIT] = files_edit,
    [FILES_WATCH] = files_watch, [FILES_PORTS] = files_ports,
};

int files_limit(struct err *err)
{
    const struct rlimit cpu = {FILES_CPU_SEC, FILES_CPU_SEC};

    if (setrlimit(RLIMIT_CPU, &cpu) < 0)
        return err_sys(err, errno, "limit the helper's time");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct rlimit memory = {FILES_MEMORY, FILES_MEMORY};

    if (setrlimit(RLIMIT_AS, &memory) < 0)
        return err_sys(err, errno, "limit the helper's memory");
#endif
    return 0;
}

/* ---- the connection ---- */

int files_lost(struct err *err)
{
    return err_set(err, ERR_ENGINE, "the daemon no longer listens");
}

int files_receive(struct files_task *j, struct files_message *ret, struct err *err)
{
    size_t kept = j->asked.data ? FILES_HEAD_SIZE + j->asked.length : 0;
    int r;

    /* Messages behind the request take each other's place, so that a body of any length fits. */
    if (kept && j->taken > kept) {
        memmove(buf_data(&j->in) + kept, buf_data(&j->in) + j->taken, j->in.len - j->taken);
        buf_truncate(&j->in, kept + j->in.len - j->taken);
        j->taken = kept;
    }
    while ((r = files_parse(buf_data(&j->in) + j->taken, j->in.len - j->taken, false, ret, err)) ==
           0) {
        size_t room = MIN((size_t)FILES_READ_SIZE, j->in.max - j->in.len);
        char *p = room ? buf_reserve(&j->in, room) : NULL;
        ssize_t n = p ? j->io->read(j->io->arg, p, room) : -ENOBUFS;

        if (n <= 0)
            return 0;
        if (j->asked.data) /* the memory may have moved */
            j->asked.data = buf_data(&j->in) + FILES_HEAD_SIZE;
        buf_commit(&j->in, (size_t)n);
    }
    if (r > 0)
        j->taken += FILES_HEAD_SIZE + ret->length;
    return r;
}

void files_answer(struct files_task *j, enum files_type type)
{
    buf_clear(&j->out);
    j->out.max = FILES_HEAD_SIZE + FILES_MESSAGE_MAX;
    files_begin(&j->out, type);
}

int files_send(struct files_task *j, struct err *err)
{
    int r = files_finish(&j->out, err);

    if (r < 0)
        return r;
    j->out_bytes += j->out.len;
    return j->io->write(j->io->arg, buf_data(&j->out), j->out.len) < 0 ? files_lost(err) : 0;
}

int files_flush(struct files_task *j, struct err *err)
{
    return j->io->flush(j->io->arg) < 0 ? files_lost(err) : 0;
}

int files_tick(struct files_task *j, struct err *err)
{
    if (++j->ticks % FILES_TICKS)
        return 0;
    if (j->io->wait(j->io->arg, -1, 0) < 0)
        return files_lost(err);
    return deadline_passed(&j->by);
}

/* ---- the request ---- */

static char *files_take_text(const struct files_field *f)
{
    return xstrndup(f->data, f->length);
}

static void files_take_field(struct files_task *j, const struct files_field *f)
{
    const struct {
        enum files_tag tag;
        char **text;
        uint64_t *number;
    } places[] = {
        {FILES_TAG_PATH, &j->path, NULL},
        {FILES_TAG_TO, &j->to, NULL},
        {FILES_TAG_OWNER, &j->owner, NULL},
        {FILES_TAG_AFTER, &j->after, NULL},
        {FILES_TAG_GLOB, &j->glob, NULL},
        {FILES_TAG_PATTERN, &j->pattern, NULL},
        {FILES_TAG_IF_MATCH, &j->if_match, NULL},
        {FILES_TAG_IF_NONE_MATCH, &j->if_none_match, NULL},
        {FILES_TAG_IF_RANGE, &j->if_range, NULL},
        {FILES_TAG_MODE, NULL, &j->mode},
        {FILES_TAG_DEPTH, NULL, &j->depth},
        {FILES_TAG_LIMIT, NULL, &j->limit},
        {FILES_TAG_TYPE, NULL, &j->type},
        {FILES_TAG_CONTEXT, NULL, &j->context},
        {FILES_TAG_FIRST, NULL, &j->first},
        {FILES_TAG_LAST, NULL, &j->last},
        {FILES_TAG_SUFFIX, NULL, &j->suffix},
    };

    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        if (places[i].tag != f->tag)
            continue;
        if (places[i].number) {
            *places[i].number = f->u64;
        } else {
            free(*places[i].text);
            *places[i].text = files_take_text(f);
        }
    }
    if (f->tag == FILES_TAG_PATTERN)
        j->pattern_len = f->length;
}

static int files_check_request(const struct files_task *j, struct err *err)
{
    const struct files_op_row *row = files_op_row(j->op);

    if (!row || !runs[j->op])
        return err_set(err, ERR_UNSUPPORTED, "the sandbox does not know this file operation");
    if (j->given & ~(row->allowed | FILES_BIT(FILES_TAG_OP)))
        return err_set(err, ERR_INVALID, "%s: a field is not allowed", row->name);
    if ((j->given & row->required) != row->required)
        return err_set(err, ERR_INVALID, "%s: a field is missing", row->name);
    return 0;
}

static int files_take_request(struct files_task *j, struct err *err)
{
    struct files_message m = {0};
    struct files_reader r;
    struct files_field f;
    int n = files_receive(j, &m, err);

    if (n < 0)
        return n;
    if (n == 0 || m.type != FILES_REQUEST)
        return err_set(err, ERR_ENGINE, "the daemon sent no request");
    j->asked = m;
    r = files_fields(&m);
    while ((n = files_next(&r, &f, err)) > 0) {
        j->given |= FILES_BIT(f.tag);
        if (f.tag == FILES_TAG_OP)
            j->op = (enum files_op)f.u64;
        files_take_field(j, &f);
    }
    return n < 0 ? n : files_check_request(j, err);
}

static void files_task_done(struct files_task *j)
{
    buf_done(&j->in);
    buf_done(&j->out);
    free(j->path);
    free(j->to);
    free(j->owner);
    free(j->after);
    free(j->glob);
    free(j->pattern);
    free(j->if_match);
    free(j->if_none_match);
    free(j->if_range);
}

int files_serve(const struct files_io *io, struct err *err)
{
    struct files_task j = {
        .io = io,
        .in =
            BUF_INIT(2 * FILES_HEAD_SIZE + FILES_REQUEST_MAX + FILES_MESSAGE_MAX + FILES_READ_SIZE),
        .out = BUF_INIT(FILES_HEAD_SIZE + FILES_MESSAGE_MAX),
        .limit = FILES_LIMIT_DEFAULT,
        .by = deadline_in(FILES_SEARCH_SEC * USEC_PER_SEC),
    };
    int r = files_take_request(&j, err);

    if (r >= 0)
        r = runs[j.op](&j, err);
    if (r >= 0)
        r = files_flush(&j, err);
    files_task_done(&j);
    return r;
}
