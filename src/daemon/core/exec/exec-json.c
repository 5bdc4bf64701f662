/*
 * Execs as JSON documents, from live objects and from stored rows: one exec, those of a sandbox,
 * and all.
 */
#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/exec/exec-large.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"

enum { EXEC_LIST_MAX = 1000 };

json_t *exec_to_json(const struct exec *x)
{
    json_t *o = json_object();

    json_object_set_new(o, "id", json_string(x->id));
    json_object_set_new(o, "sandbox", json_string(x->sandbox_name));
    json_object_set_new(o, "argv", json_from_strv(exec_large_argv(x)));
    exec_large_to_json(o, x->argv_words, x->argv_bytes);
    json_object_set_new(o, "state", json_string(exec_state_name(x->state)));
    json_object_set_new(o, "started_at", json_from_time(x->started_at));
    json_object_set_new(o, "ended_at", json_from_time(x->ended_at));
    json_object_set_new(o, "detached", json_boolean(x->detached));
    json_object_set_new(o, "tty", json_boolean(x->req.tty));
    json_object_set_new(o, "session", json_boolean(x->req.session));
    json_object_set_new(o, "end",
                        x->state == EXEC_ENDED ? end_record_to_json(&x->end) : json_null());
    json_object_set_new(o, "journal", json_string("kept"));
    return o;
}

static json_t *exec_json_parse_or_null(const char *text)
{
    json_t *j = NULL;

    if (!text || json_parse("stored exec", text, strlen(text), &j, NULL) < 0)
        return json_null();
    return j;
}

static json_t *exec_json_from_row(const struct sandbox *sb, const struct store_exec *row)
{
    _cleanup_json_ json_t *options = exec_json_parse_or_null(row->options);
    json_t *o = json_object();
    size_t words = 0, bytes = 0;

    exec_large_from_options(options, &words, &bytes);
    json_object_set_new(o, "id", json_string(row->id));
    json_object_set_new(o, "sandbox", json_string(sb->name));
    json_object_set_new(o, "argv", exec_json_parse_or_null(row->argv));
    exec_large_to_json(o, words, bytes);
    json_object_set_new(o, "state", json_string(row->state));
    json_object_set_new(o, "started_at", json_from_time(row->started_at));
    json_object_set_new(o, "ended_at", json_from_time(row->ended_at));
    json_object_set_new(o, "detached",
                        json_boolean(json_is_true(json_object_get(options, "detached"))));
    json_object_set_new(o, "tty", json_boolean(json_is_true(json_object_get(options, "tty"))));
    json_object_set_new(o, "session",
                        json_boolean(json_is_true(json_object_get(options, "session"))));
    json_object_set_new(o, "end", exec_json_parse_or_null(row->end));
    json_object_set_new(o, "journal", json_string(row->journal_gone ? "gone" : "kept"));
    return o;
}

struct exec_json_collect {
    struct sandbox *sb;
    json_t *list; /* or a single document */
    bool one;
    struct exec_page *page; /* NULL: there is no page */
    unsigned n;             /* of this page */
    uint64_t last;          /* seq of the last one */
};

/* Whether one more belongs to this page. It then knows whether another page follows. */
static bool exec_json_fits(struct exec_json_collect *c, uint64_t seq)
{
    if (c->page && c->n == c->page->limit) {
        c->page->next = c->last;
        return false;
    }
    c->n++;
    c->last = seq;
    return true;
}

static void exec_json_collect_row(void *arg, const struct store_exec *row)
{
    struct exec_json_collect *c = arg;
    const struct exec *live = exec_find_live(c->sb, row->id);
    json_t *o;

    if (!exec_json_fits(c, row->seq))
        return;
    if (!live && !row->end)
        live = exec_save_find(c->sb->m, row->id);
    o = live ? exec_to_json(live) : exec_json_from_row(c->sb, row);

    if (c->one)
        c->list = o;
    else
        json_array_append_new(c->list, o);
}

int exec_list_json(struct manager *m, struct sandbox *sb, struct exec_page *page, json_t *list,
                   struct err *err)
{
    struct exec_json_collect c = {.sb = sb, .list = list, .page = page};
    struct store_exec_page stored;

    page->next = 0;
    if (!page->limit || page->limit > EXEC_LIST_MAX)
        page->limit = EXEC_LIST_MAX;
    stored = (struct store_exec_page){page->limit + 1, page->before, page->sessions};
    return store_exec_each(m->store, sb->id, &stored, exec_json_collect_row, &c, err);
}

void exec_list_live_json(const struct sandbox *sb, struct exec_page *page, json_t *list)
{
    struct exec_json_collect c = {.page = page};

    page->next = 0;
    for (const struct exec *x = sb->execs; x; x = x->next) /* the newest first */
        if ((!page->before || x->seq < page->before) && exec_json_fits(&c, x->seq))
            json_array_append_new(list, exec_to_json(x));
}

int exec_totals_of(struct manager *m, const struct sandbox *sb, json_t **ret, struct err *err)
{
    int r = exec_save_now(m, err);

    if (r < 0)
        return r;
    return usage_totals_of(&m->usage_totals, sb->id, ret, err);
}

int exec_totals_all(struct manager *m, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *sandboxes = json_object();
    struct sandbox *sb = NULL;
    int r = exec_save_now(m, err);

    r = r < 0 ? r : usage_totals_all(&m->usage_totals, &doc, err);
    if (r < 0)
        return r;
    for (size_t i = 0; manager_next(m, &i, &sb);) {
        json_t *sum = NULL;

        if (sb->ephemeral)
            continue;
        r = exec_totals_of(m, sb, &sum, err);
        if (r < 0)
            return r;
        json_object_set_new(sandboxes, sb->name, sum);
    }
    json_object_set(doc, "sandboxes", sandboxes);
    *ret = TAKE_PTR(doc);
    return 0;
}

int exec_get_json(struct manager *m, struct sandbox *sb, const char *id, json_t **ret,
                  struct err *err)
{
    const struct exec *live = exec_find_live(sb, id);
    struct exec_json_collect c = {.sb = sb, .one = true};
    int r;

    if (live) { /* it may not have a row yet, while its sandbox starts */
        *ret = exec_to_json(live);
        return 0;
    }
    r = store_exec_get(m->store, sb->id, id, exec_json_collect_row, &c, err);
    if (r < 0)
        return err_wrap(err, "sandbox '%s'", sb->name);
    *ret = c.list;
    return 0;
}
