/*
 * list and find: entries of a tree, in pages. A page ends with the path of its last entry, from
 * which the next one goes on.
 */
#include <stdlib.h>
#include <string.h>

#include "files/folder.h"
#include "files/match.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { LIST_BYTES_MAX = FILES_ANSWER_MAX / 2 };

struct files_lister {
    struct files_task *job;
    uint64_t sent;
    char *last; /* owned: the last path below the top that was looked at */
};

static bool files_list_wants(const struct files_lister *l, const struct files_node *n)
{
    const struct files_task *j = l->job;

    if (files_has(j, FILES_TAG_TYPE) && files_entry_type(&n->st) != j->type)
        return false;
    return !j->glob || files_match_path(j->glob, n->rel, n->name);
}

static int files_list_visit(void *arg, const struct files_node *n, struct err *err)
{
    struct files_lister *l = arg;
    int r;

    free(l->last);
    l->last = xstrdup(n->rel);
    if (!files_list_wants(l, n))
        return FILES_GO_ON;
    r = files_send_entry(l->job, FILES_ITEM, n->dirfd, n->name, n->path, &n->st, err);
    if (r < 0)
        return r;
    l->sent++;
    return l->sent >= l->job->limit || l->job->out_bytes >= LIST_BYTES_MAX ? FILES_STOP
                                                                           : FILES_GO_ON;
}

int files_send_page(struct files_task *j, const struct files_walk *w, const char *last, int stopped,
                    uint64_t searched, struct err *err)
{
    files_answer(j, FILES_DONE);
    if (stopped > 0)
        files_put_str(&j->out, FILES_TAG_AFTER, last);
    files_put_u64(&j->out, FILES_TAG_SKIPPED, w->unreadable);
    if (j->op == FILES_GREP)
        files_put_u64(&j->out, FILES_TAG_SEARCHED, searched);
    return files_send(j, err);
}

static int files_list_page(struct files_task *j, unsigned depth, struct err *err)
{
    struct files_lister l = {.job = j};
    struct files_walk w = {
        .job = j, .visit = files_list_visit, .arg = &l, .depth_max = depth, .after = j->after};
    int r = files_walk_tree(&w, j->path, err);

    if (r >= 0)
        r = files_send_page(j, &w, l.last ? l.last : j->after, r, 0, err);
    free(l.last);
    return r;
}

int files_list(struct files_task *j, struct err *err)
{
    return files_list_page(j, files_has(j, FILES_TAG_DEPTH) ? (unsigned)j->depth : 1, err);
}

int files_find(struct files_task *j, struct err *err)
{
    return files_list_page(j, files_has(j, FILES_TAG_DEPTH) ? (unsigned)j->depth : UINT32_MAX, err);
}
