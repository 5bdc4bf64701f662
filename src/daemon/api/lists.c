/*
 * Lists of sandboxes, execs and sessions, by pages. The order never changes between two pages:
 * sandboxes by name, execs of a sandbox from the newest to the oldest. A page ends with `next`,
 * which says where the following one begins; clients pass it back as `after`.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/core/exec/exec.h"
#include "lib/base/cleanup.h"
#include "lib/base/command-size.h"
#include "lib/base/json-put.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { LIMIT_MAX = 1000, ALL_EXECS_MAX = 1000, LISTED_ENV_MAX = 64 << 10 };

/* What a request wants to see of a list. */
struct list_query {
    uint64_t limit; /* 0: not given */
    char *after;    /* NULL: from the beginning */
    char *engine, *prefix;
    char **labels, **states; /* KEY or KEY=VALUE, all of them; any of them */
};

#define _cleanup_list_query_ __attribute__((cleanup(lists_done)))

static void lists_done(struct list_query *q)
{
    free(q->after);
    free(q->engine);
    free(q->prefix);
    strv_free(q->labels);
    strv_free(q->states);
}

static int lists_read(const struct api_call *c, struct list_query *q, struct err *err)
{
    _cleanup_free_ char *limit = NULL;
    int r = call_query_text(c, "limit", &limit, err);

    if (r >= 0 && limit && parse_u64(limit, 1, LIMIT_MAX, &q->limit, err) < 0)
        r = err_wrap(err, "query parameter 'limit'");
    return r < 0 ? r : call_query_text(c, "after", &q->after, err);
}

static int lists_refuse_after(const struct list_query *q, struct err *err)
{
    err_set(err, ERR_INVALID,
            "query parameter 'after': '%.80s' is not the 'next' of a page of this list", q->after);
    return err_hint(err, "Give it unchanged.");
}

static void lists_reply(struct api_call *c, json_t *doc, char *next)
{
    json_object_set_new(doc, "next", json_from_text(next));
    free(next);
    call_reply(c, 200, doc);
}

/* ---- sandboxes ---- */

static int lists_by_name(const void *a, const void *b)
{
    const struct sandbox *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* All sandboxes by name. The caller frees the array. */
static struct sandbox **lists_sorted(struct manager *m, size_t *ret_n)
{
    struct sandbox **all = NULL, *sb;
    size_t n = 0;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        if (n % 64 == 0)
            all = xreallocarray(all, n + 64, sizeof(*all));
        all[n++] = sb;
    }
    if (n)
        qsort(all, n, sizeof(*all), lists_by_name);
    *ret_n = n;
    return all;
}

static bool lists_has_label(const struct sandbox *sb, const char *wanted)
{
    size_t len = strlen(wanted);

    if (strchr(wanted, '='))
        return strv_contains(sb->spec.labels, wanted);
    for (char *const *p = sb->spec.labels; p && *p; p++)
        if (strncmp(*p, wanted, len) == 0 && (*p)[len] == '=')
            return true;
    return false;
}

static bool lists_shows(const struct list_query *q, const struct sandbox *sb)
{
    for (char **p = q->labels; p && *p; p++)
        if (!lists_has_label(sb, *p))
            return false;
    return (!q->after || strcmp(sb->name, q->after) > 0) &&
           (!q->prefix || strncmp(sb->name, q->prefix, strlen(q->prefix)) == 0) &&
           (!q->engine || (sb->engine && STREQ(sb->engine->ops->name, q->engine))) &&
           (!q->states || strv_contains(q->states, sandbox_shown_state(sb)));
}

/* A wrong word would otherwise give an empty list. */
static int lists_check_states(char *const *states, struct err *err)
{
    for (char *const *p = states; p && *p; p++)
        if (sandbox_state_parse(*p) == SANDBOX_STATE_MAX && !STREQ(*p, STATE_RECONCILING))
            return err_set(err, ERR_INVALID, "query parameter 'state': unknown state '%.40s'", *p);
    return 0;
}

static int lists_read_filters(struct api_call *c, struct list_query *q, struct err *err)
{
    if (lists_read(c, q, err) < 0 || call_query_engine(c, &q->engine, err) < 0 ||
        call_query_text(c, "prefix", &q->prefix, err) < 0 ||
        call_query_texts(c, "label", &q->labels, err) < 0 ||
        call_query_texts(c, "state", &q->states, err) < 0)
        return -err->code;
    return lists_check_states(q->states, err);
}

/* Without large environments: a list of many such sandboxes would take gigabytes. Returns the last
 * sandbox of the page if there are more. */
static const struct sandbox *lists_put(struct buf *b, const struct list_query *q,
                                       struct sandbox *const *all, size_t n)
{
    const struct sandbox *last = NULL;
    uint64_t shown = 0;

    for (size_t i = 0; i < n; i++) {
        if (!lists_shows(q, all[i]))
            continue;
        if (q->limit && shown == q->limit)
            return last;
        sandbox_put(b, NULL, all[i], command_size(all[i]->spec.env) <= LISTED_ENV_MAX);
        last = all[i];
        shown++;
    }
    return NULL;
}

void handle_sandbox_list(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_list_query_ struct list_query q = {0};
    _cleanup_free_ struct sandbox **all = NULL;
    _cleanup_buf_ struct buf b = JSON_PUT_INIT;
    const struct sandbox *last;
    size_t n;

    if (lists_read_filters(c, &q, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    all = lists_sorted(c->manager, &n);
    json_put_open(&b, NULL, '{');
    json_put_open(&b, "sandboxes", '[');
    last = lists_put(&b, &q, all, n);
    json_put_close(&b, ']');
    json_put_string(&b, "next", last ? last->name : NULL);
    json_put_close(&b, '}');
    call_reply_text(c, 200, buf_data(&b));
}

/* ---- execs and sessions of a sandbox ---- */

static char *lists_next_exec(const struct exec_page *page)
{
    return page->next ? xasprintf("%llu", (unsigned long long)page->next) : NULL;
}

static int lists_read_exec_page(struct api_call *c, struct exec_page *page, struct err *err)
{
    _cleanup_list_query_ struct list_query q = {0};
    int r = lists_read(c, &q, err);

    if (r < 0)
        return r;
    page->limit = (unsigned)q.limit;
    return q.after && parse_u64(q.after, 1, INT64_MAX, &page->before, NULL) < 0
               ? lists_refuse_after(&q, err)
               : 0;
}

/* The execs of a sandbox; NULL: the call is answered. */
static json_t *lists_execs(struct api_call *c, struct sandbox *sb, struct exec_page *page)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *list = json_array();

    if (lists_read_exec_page(c, page, &err) < 0 ||
        exec_list_json(c->manager, sb, page, list, &err) < 0) {
        call_reply_err(c, &err);
        return NULL;
    }
    return TAKE_PTR(list);
}

void handle_exec_list(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *list = NULL, *totals = NULL;
    struct exec_page page = {0};
    struct sandbox *sb = call_sandbox(c);

    list = sb ? lists_execs(c, sb, &page) : NULL;
    if (!list)
        return;
    if (exec_totals_of(c->manager, sb, &totals, &err) < 0)
        call_reply_err(c, &err);
    else
        lists_reply(c, json_pack("{s:O, s:O}", "execs", list, "totals", totals),
                    lists_next_exec(&page));
}

void handle_session_list(struct api_call *c)
{
    struct exec_page page = {.sessions = true};
    struct sandbox *sb = call_sandbox(c);
    json_t *list = sb ? lists_execs(c, sb, &page) : NULL;

    if (list)
        lists_reply(c, json_pack("{s:o}", "sessions", list), lists_next_exec(&page));
}

/* ---- execs of all sandboxes ---- */

/* A place in the list of all execs, as text NAME/SEQ: from that exec of that sandbox on. */
struct list_place {
    const char *name;
    uint64_t before;
};

static int lists_read_place(struct list_query *q, struct list_place *ret, struct err *err)
{
    char *slash = q->after ? strchr(q->after, '/') : NULL;

    if (!q->after)
        return 0;
    if (!slash || parse_u64(slash + 1, 0, INT64_MAX, &ret->before, NULL) < 0)
        return lists_refuse_after(q, err);
    *slash = '\0';
    ret->name = q->after;
    return 0;
}

static int lists_add_execs(struct api_call *c, bool all, const struct list_query *q,
                           const struct list_place *from, json_t *list, char **ret_next,
                           struct err *err)
{
    _cleanup_free_ struct sandbox **sorted = NULL;
    unsigned limit = q->limit ? (unsigned)q->limit : all ? ALL_EXECS_MAX : UINT_MAX;
    size_t n;

    sorted = lists_sorted(c->manager, &n);
    for (size_t i = 0; i < n && !*ret_next; i++) {
        struct sandbox *sb = sorted[i];
        struct exec_page page = {.limit = limit - (unsigned)json_array_size(list)};

        if (from->name && strcmp(sb->name, from->name) < 0)
            continue;
        if (from->name && STREQ(sb->name, from->name))
            page.before = from->before;
        if (!page.limit)
            *ret_next = xasprintf("%s/0", sb->name);
        else if (!all || sb->ephemeral)
            exec_list_live_json(sb, &page, list);
        else if (exec_list_json(c->manager, sb, &page, list, err) < 0)
            return -err->code;
        if (page.next)
            *ret_next = xasprintf("%s/%llu", sb->name, (unsigned long long)page.next);
    }
    return 0;
}

void handle_exec_list_all(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_json_ json_t *list = json_array(), *totals = NULL;
    _cleanup_list_query_ struct list_query q = {0};
    _cleanup_free_ char *next = NULL;
    struct list_place from = {0};
    bool all = false;

    if (call_query_bool(c, "all", &all, &err) < 0 || lists_read(c, &q, &err) < 0 ||
        lists_read_place(&q, &from, &err) < 0 ||
        lists_add_execs(c, all, &q, &from, list, &next, &err) < 0 ||
        exec_totals_all(c->manager, &totals, &err) < 0)
        call_reply_err(c, &err);
    else
        lists_reply(c, json_pack("{s:O, s:O}", "execs", list, "totals", totals), TAKE_PTR(next));
}
