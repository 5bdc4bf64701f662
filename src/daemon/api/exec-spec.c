#include "daemon/api/exec-spec.h"

#include <string.h>

#include "daemon/core/sandbox/command-check.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum {
    EXEC_SECRETS_MAX = 32,
    EXEC_SECRETS_BYTES_MAX = 64 << 10, /* names and values together */
};

struct exec_doc {
    const json_t *argv, *env, *secrets;
    const char *shell, *input, *input_base64, *output;
    const char *workdir, *user, *on_disconnect;
    bool want_stdin, tty, merged, stats;
    uint64_t rows, cols, timeout_ms, idle_timeout_ms, output_max;
};

static int exec_spec_read_doc(const json_t *doc, const char *where, struct exec_doc *d,
                              struct err *err)
{
    const struct json_field fields[] = {
        {"argv", JSON_FIELD_ARRAY, &d->argv},
        {"shell", JSON_FIELD_STRING, &d->shell},
        {"input", JSON_FIELD_STRING, &d->input},
        {"input_base64", JSON_FIELD_STRING, &d->input_base64},
        {"output", JSON_FIELD_STRING, &d->output},
        {"output_max", JSON_FIELD_U64, &d->output_max},
        {"env", JSON_FIELD_OBJECT, &d->env},
        {"secrets", JSON_FIELD_OBJECT, &d->secrets},
        {"workdir", JSON_FIELD_STRING, &d->workdir},
        {"user", JSON_FIELD_STRING, &d->user},
        {"stdin", JSON_FIELD_BOOL, &d->want_stdin},
        {"tty", JSON_FIELD_BOOL, &d->tty},
        {"merged", JSON_FIELD_BOOL, &d->merged},
        {"rows", JSON_FIELD_U64, &d->rows},
        {"cols", JSON_FIELD_U64, &d->cols},
        {"timeout_ms", JSON_FIELD_U64, &d->timeout_ms},
        {"idle_timeout_ms", JSON_FIELD_U64, &d->idle_timeout_ms},
        {"on_disconnect", JSON_FIELD_STRING, &d->on_disconnect},
        {"stats", JSON_FIELD_BOOL, &d->stats},
    };

    return json_read(doc, where, fields, ARRAY_SIZE(fields), err);
}

static int exec_spec_read_argv(const json_t *array, char ***ret, struct err *err)
{
    _cleanup_strv_ char **v = NULL;
    int r;

    if (!array || json_array_size(array) == 0)
        return err_set(err, ERR_INVALID,
                       "fields 'argv' and 'shell': one of them must name the command");
    r = json_read_strv(array, "argv", &v, err);
    if (r < 0)
        return r;
    if (!v || !v[0] || !*v[0])
        return err_set(err, ERR_INVALID, "field 'argv[0]': must not be empty");
    r = command_check_argv(v, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(v);
    return 0;
}

static int exec_spec_check_numbers(const struct exec_doc *d, struct err *err)
{
    const struct {
        const char *name;
        uint64_t value, max;
        enum parse_unit unit;
    } numbers[] = {
        {"field 'rows'", d->rows, SPEC_TERMINAL_MAX, PARSE_COUNT},
        {"field 'cols'", d->cols, SPEC_TERMINAL_MAX, PARSE_COUNT},
        {"field 'timeout_ms'", d->timeout_ms, SPEC_TIMEOUT_MAX_MS, PARSE_MSEC},
        {"field 'idle_timeout_ms'", d->idle_timeout_ms, SPEC_TIMEOUT_MAX_MS, PARSE_MSEC},
    };

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        int r = parse_check_range(numbers[i].name, numbers[i].value, 0, numbers[i].max,
                                  numbers[i].unit, err);

        if (r < 0)
            return r;
    }
    return 0;
}

static int exec_spec_read_disconnect(const char *s, enum on_disconnect *ret, struct err *err)
{
    if (s && !STREQ(s, "keep") && !STREQ(s, "kill"))
        return err_set(err, ERR_INVALID, "field 'on_disconnect': '%s' must be keep or kill", s);
    if (s)
        *ret = STREQ(s, "keep") ? DISCONNECT_KEEP : DISCONNECT_KILL;
    return 0;
}

/* A relative one is below the sandbox's working folder, which its supervisor knows. */
static int exec_spec_check_workdir(const char *dir, struct err *err)
{
    _cleanup_free_ char *absolute = *dir == '/' ? xstrdup(dir) : xasprintf("/%s", dir);

    if (*dir && spec_check_path("workdir", absolute, NULL) >= 0)
        return 0;
    return err_set(err, ERR_INVALID,
                   "field 'workdir': '%s' must be a path without '.', '..' or '//'", dir);
}

static int exec_spec_check_strings(const struct exec_doc *d, struct err *err)
{
    if (d->user && parse_user(d->user, err) < 0)
        return err_wrap(err, "field 'user'");
    return d->workdir ? exec_spec_check_workdir(d->workdir, err) : 0;
}

static int exec_spec_read_secrets(const json_t *secrets, struct exec_request *req, struct err *err)
{
    size_t bytes = 0;
    const char *name;
    json_t *value;

    if (json_object_size(secrets) > EXEC_SECRETS_MAX)
        return err_set(err, ERR_LIMIT, "field 'secrets': too many (%zu, at most %d)",
                       json_object_size(secrets), EXEC_SECRETS_MAX);
    json_object_foreach ((json_t *)secrets, name, value) {
        if (parse_secret_name(name, err) < 0)
            return err_wrap(err, "field 'secrets'");
        if (!json_is_string(value))
            return err_set(err, ERR_INVALID, "field 'secrets.%s': must be a string", name);
        bytes += strlen(name) + 1 + json_string_length(value);
    }
    if (bytes > EXEC_SECRETS_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "field 'secrets': too large (%zu bytes, at most %d KiB)",
                       bytes, EXEC_SECRETS_BYTES_MAX >> 10);
    json_object_foreach ((json_t *)secrets, name, value) {
        size_t len = json_string_length(value);

        req->secrets = xreallocarray(req->secrets, req->n_secrets + 1, sizeof(*req->secrets));
        req->secrets[req->n_secrets++] = (struct exec_secret){
            .name = xstrdup(name), .value = xmemdup(json_string_value(value), len), .len = len};
        /* The copy in the document is wiped, because it is not needed again. */
        explicit_bzero((char *)json_string_value(value), len);
    }
    return 0;
}

/* The command: `argv`, or `shell`, which the shell of the sandbox reads. */
static int exec_spec_read_command(const struct exec_doc *d, char ***ret, struct err *err)
{
    _cleanup_json_ json_t *argv = NULL;

    if (!d->shell)
        return exec_spec_read_argv(d->argv, ret, err);
    if (d->argv)
        return err_set(err, ERR_INVALID, "fields 'argv' and 'shell': only one is allowed");
    argv = json_pack("[s, s, s]", "sh", "-c", d->shell);
    return exec_spec_read_argv(argv, ret, err) < 0 ? err_wrap(err, "field 'shell'") : 0;
}

/* What the command reads: the supervisor writes it, and then the end of the input. */
static int exec_spec_read_input(const struct exec_doc *d, struct exec_request *req, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(SIZE_MAX / 2);
    int r = 0;

    if (!d->input && !d->input_base64)
        return 0;
    if (d->input && d->input_base64)
        return err_set(err, ERR_INVALID, "fields 'input' and 'input_base64': only one is allowed");
    if (d->want_stdin || d->tty)
        return err_set(err, ERR_INVALID, "field 'input': not allowed with '%s'",
                       d->tty ? "tty" : "stdin");
    if (d->input_base64)
        r = base64_decode(&b, d->input_base64, strlen(d->input_base64), err);
    else
        r = buf_append_str(&b, d->input);
    if (r < 0)
        return err_wrap(err, "field 'input_base64'");
    req->input_len = b.len;
    req->input = buf_steal(&b);
    return 0;
}

static int exec_spec_read_output(const struct exec_doc *d, struct api_exec_spec *s, struct err *err)
{
    if (d->output && !STREQ(d->output, "inline"))
        return err_set(err, ERR_INVALID, "field 'output': '%s' must be inline", d->output);
    if (d->output_max && !d->output)
        return err_set(err, ERR_INVALID, "field 'output_max': needs '\"output\":\"inline\"'");
    s->output_inline = d->output != NULL;
    s->output_max = d->output_max ? d->output_max : SPEC_OUTPUT_DEFAULT;
    return parse_check_range("field 'output_max'", s->output_max, 1, SPEC_OUTPUT_MAX, PARSE_BYTES,
                             err);
}

static int exec_spec_fill(const struct exec_doc *d, struct api_exec_spec *s, struct err *err)
{
    struct exec_request *req = &s->req;
    int r;

    r = exec_spec_read_command(d, &req->argv, err);
    if (r < 0)
        return r;
    r = exec_spec_read_input(d, req, err);
    if (r < 0)
        return r;
    r = exec_spec_read_output(d, s, err);
    if (r < 0)
        return r;
    r = d->env ? spec_env_read(d->env, &req->env, err) : 0;
    if (r < 0)
        return r;
    r = exec_spec_check_strings(d, err);
    if (r < 0)
        return r;
    r = exec_spec_check_numbers(d, err);
    if (r < 0)
        return r;
    r = exec_spec_read_disconnect(d->on_disconnect, &s->on_disconnect, err);
    if (r < 0)
        return r;
    r = d->secrets ? exec_spec_read_secrets(d->secrets, req, err) : 0;
    if (r < 0)
        return r;
    req->cwd = d->workdir ? xstrdup(d->workdir) : NULL;
    req->user = d->user ? xstrdup(d->user) : NULL;
    s->stats = d->stats;
    req->want_stdin = d->want_stdin;
    req->tty = d->tty;
    req->merged = d->merged && !d->tty; /* a terminal has one output anyway */
    req->rows = (uint16_t)d->rows;
    req->cols = (uint16_t)d->cols;
    req->timeout = d->timeout_ms * USEC_PER_MSEC;
    req->idle_timeout = d->idle_timeout_ms * USEC_PER_MSEC;
    return 0;
}

int exec_spec_read(const json_t *doc, const char *where, struct api_exec_spec *ret, struct err *err)
{
    struct api_exec_spec s = {0};
    struct exec_doc d = {0};
    int r;

    r = exec_spec_read_doc(doc, where, &d, err);
    if (r < 0)
        return r;
    r = exec_spec_fill(&d, &s, err);
    if (r < 0) {
        exec_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void exec_spec_done(struct api_exec_spec *s)
{
    exec_request_done(&s->req);
}

int exec_spec_check_size(uint64_t rows, uint64_t cols, struct err *err)
{
    int r = parse_check_range("field 'rows'", rows, 1, SPEC_TERMINAL_MAX, PARSE_COUNT, err);

    return r < 0 ? r
                 : parse_check_range("field 'cols'", cols, 1, SPEC_TERMINAL_MAX, PARSE_COUNT, err);
}
