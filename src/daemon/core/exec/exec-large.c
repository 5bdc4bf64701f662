#include "daemon/core/exec/exec-large.h"

#include <string.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/command-size.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum {
    EXEC_SHOWN_MAX = 32 << 10,      /* bytes of argv as JSON */
    EXEC_SMALL = 192 << 10,         /* requests up to this size do not count */
    EXEC_UNSTARTED_MAX = 256 << 20, /* bytes of all larger requests that wait for their start */
};

static size_t exec_large_size(const struct exec_request *req)
{
    return command_size(req->argv) + command_size(req->env) + req->input_len;
}

int exec_large_check(const struct manager *m, const struct exec_request *req, struct err *err)
{
    size_t size = exec_large_size(req);

    if (size <= EXEC_SMALL || m->unstarted + size <= EXEC_UNSTARTED_MAX)
        return 0;
    err_set(err, ERR_LIMIT, "too many large commands wait for their start (%d MiB together)",
            EXEC_UNSTARTED_MAX >> 20);
    return err_hint(err, "Try again when they run.");
}

/* ---- the part that is shown ---- */

static size_t exec_large_json_len(unsigned char c)
{
    return c < 0x20 ? 6 : c == '"' || c == '\\' ? 2 : 1;
}

/* How many bytes of the word fit, without a part of a character. */
static size_t exec_large_fit(const char *word, size_t room, size_t *ret_json)
{
    size_t n = 0, json = 0;

    while (word[n] && json + exec_large_json_len((unsigned char)word[n]) <= room)
        json += exec_large_json_len((unsigned char)word[n++]);
    while (word[n] && n && ((unsigned char)word[n] & 0xc0) == 0x80)
        n--;
    *ret_json = json;
    return n;
}

/* NULL: the whole command fits. */
static char **exec_large_cut(char *const *argv)
{
    struct strv_list l = {0};
    size_t used = 0;

    for (; argv && *argv; argv++) {
        size_t json = 0, quotes = 3, n;

        if (used + quotes > EXEC_SHOWN_MAX)
            return l.v;
        n = exec_large_fit(*argv, EXEC_SHOWN_MAX - used - quotes, &json);
        strv_list_push(&l, xstrndup(*argv, n));
        if ((*argv)[n])
            return l.v;
        used += quotes + json;
    }
    strv_free(l.v);
    return NULL;
}

char *const *exec_large_argv(const struct exec *x)
{
    return x->argv_shown ? x->argv_shown : x->req.argv;
}

/* ---- the life of the request ---- */

void exec_large_begin(struct exec *x)
{
    size_t size = exec_large_size(&x->req);

    if (size > EXEC_SMALL) {
        x->held = size;
        x->m->unstarted += size;
    }
    x->argv_shown = exec_large_cut(x->req.argv);
    if (!x->argv_shown)
        return;
    x->argv_words = strv_len(x->req.argv);
    x->argv_bytes = command_size(x->req.argv) - x->argv_words * COMMAND_STRING_COST;
}

void exec_large_release(struct exec *x)
{
    x->m->unstarted -= x->held;
    x->held = 0;
    if (!x->argv_shown)
        return;
    strv_free(x->req.argv);
    x->req.argv = TAKE_PTR(x->argv_shown);
}

/* ---- documents ---- */

void exec_large_to_json(json_t *doc, size_t words, size_t bytes)
{
    if (words)
        json_object_set_new(
            doc, "argv_truncated",
            json_pack("{s:I, s:I}", "words", (json_int_t)words, "bytes", (json_int_t)bytes));
}

void exec_large_to_options(const struct exec *x, json_t *options)
{
    exec_large_to_json(options, x->argv_words, x->argv_bytes);
}

void exec_large_from_options(const json_t *options, size_t *ret_words, size_t *ret_bytes)
{
    const json_t *cut = json_object_get(options, "argv_truncated");

    *ret_words = (size_t)json_integer_value(json_object_get(cut, "words"));
    *ret_bytes = (size_t)json_integer_value(json_object_get(cut, "bytes"));
}
