#include "api/exec-spec.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "core/spec.h"

enum {
    EXEC_ARGV_MAX = 4096,
    EXEC_ARGV_BYTES_MAX = 80 << 10, /* with the environment it must fit one message to the shim */
    EXEC_TTY_MAX = 65535,
};
#define EXEC_TIME_MAX_MS (UINT64_C(366) * 24 * 3600 * 1000)

struct doc {
    const json_t *argv, *env;
    const char *workdir, *user, *on_disconnect;
    bool want_stdin, tty, stats;
    uint64_t rows, cols, timeout_ms, idle_timeout_ms;
};

static int read_doc(const json_t *doc, const char *where, struct doc *d, struct err *err)
{
    const struct json_field fields[] = {
        {"argv", JSON_FIELD_ARRAY, &d->argv},
        {"env", JSON_FIELD_OBJECT, &d->env},
        {"workdir", JSON_FIELD_STRING, &d->workdir},
        {"user", JSON_FIELD_STRING, &d->user},
        {"stdin", JSON_FIELD_BOOL, &d->want_stdin},
        {"tty", JSON_FIELD_BOOL, &d->tty},
        {"rows", JSON_FIELD_U64, &d->rows},
        {"cols", JSON_FIELD_U64, &d->cols},
        {"timeout_ms", JSON_FIELD_U64, &d->timeout_ms},
        {"idle_timeout_ms", JSON_FIELD_U64, &d->idle_timeout_ms},
        {"on_disconnect", JSON_FIELD_STRING, &d->on_disconnect},
        {"stats", JSON_FIELD_BOOL, &d->stats},
    };

    return json_read(doc, where, fields, ARRAY_SIZE(fields), err);
}

static int read_argv(const json_t *array, char ***ret, struct err *err)
{
    _cleanup_strv_ char **v = NULL;
    size_t bytes = 0;
    int r;

    if (!array || json_array_size(array) == 0)
        return err_set(err, ERR_INVALID, "field 'argv' must hold at least the command");
    if (json_array_size(array) > EXEC_ARGV_MAX)
        return err_set(err, ERR_INVALID, "field 'argv' has %zu words, at most %d are allowed",
                       json_array_size(array), EXEC_ARGV_MAX);
    r = json_read_strv(array, "argv", &v, err);
    if (r < 0)
        return r;
    for (char **p = v; *p; p++)
        bytes += strlen(*p) + 1;
    if (bytes > EXEC_ARGV_BYTES_MAX)
        return err_set(err, ERR_INVALID, "field 'argv' has %zu bytes, at most %d are allowed",
                       bytes, EXEC_ARGV_BYTES_MAX);
    if (!v || !v[0] || !*v[0])
        return err_set(err, ERR_INVALID, "field 'argv[0]' must not be empty");
    *ret = TAKE_PTR(v);
    return 0;
}

static int check_range(const char *field, uint64_t v, uint64_t max, struct err *err)
{
    if (v <= max)
        return 0;
    return err_set(err, ERR_INVALID, "field '%s': %llu is not from 0 to %llu", field,
                   (unsigned long long)v, (unsigned long long)max);
}

static int check_numbers(const struct doc *d, struct err *err)
{
    int r;

    r = check_range("rows", d->rows, EXEC_TTY_MAX, err);
    if (r >= 0)
        r = check_range("cols", d->cols, EXEC_TTY_MAX, err);
    if (r >= 0)
        r = check_range("timeout_ms", d->timeout_ms, EXEC_TIME_MAX_MS, err);
    if (r >= 0)
        r = check_range("idle_timeout_ms", d->idle_timeout_ms, EXEC_TIME_MAX_MS, err);
    return r;
}

static int read_disconnect(const char *s, enum on_disconnect *ret, struct err *err)
{
    if (s && !STREQ(s, "keep") && !STREQ(s, "kill"))
        return err_set(err, ERR_INVALID, "field 'on_disconnect': '%s' is neither keep nor kill", s);
    if (s)
        *ret = STREQ(s, "keep") ? DISCONNECT_KEEP : DISCONNECT_KILL;
    return 0;
}

static int check_strings(const struct doc *d, struct err *err)
{
    if (d->user && parse_user(d->user, err) < 0)
        return err_wrap(err, "field 'user'");
    return d->workdir ? spec_check_path("workdir", d->workdir, err) : 0;
}

static int fill(const struct doc *d, struct exec_spec *s, struct err *err)
{
    struct exec_request *req = &s->req;
    int r;

    r = read_argv(d->argv, &req->argv, err);
    if (r >= 0 && d->env)
        r = spec_env_read(d->env, &req->env, err);
    if (r >= 0)
        r = check_strings(d, err);
    if (r >= 0)
        r = check_numbers(d, err);
    if (r >= 0)
        r = read_disconnect(d->on_disconnect, &s->on_disconnect, err);
    if (r < 0)
        return r;
    req->cwd = d->workdir ? xstrdup(d->workdir) : NULL;
    req->user = d->user ? xstrdup(d->user) : NULL;
    s->stats = d->stats;
    req->want_stdin = d->want_stdin;
    req->tty = d->tty;
    req->rows = (uint16_t)d->rows;
    req->cols = (uint16_t)d->cols;
    req->timeout = d->timeout_ms * USEC_PER_MSEC;
    req->idle_timeout = d->idle_timeout_ms * USEC_PER_MSEC;
    return 0;
}

int exec_spec_read(const json_t *doc, const char *where, struct exec_spec *ret, struct err *err)
{
    struct exec_spec s = {0};
    struct doc d = {0};
    int r;

    r = read_doc(doc, where, &d, err);
    if (r >= 0)
        r = fill(&d, &s, err);
    if (r < 0) {
        exec_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void exec_spec_done(struct exec_spec *s)
{
    exec_request_done(&s->req);
}
