/* ripcord image pull and push. The daemon transfers the image and reports the progress. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/docker-auth.h"
#include "cli/image.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { LINE_MAX_BYTES = 1 << 20, PASSWORD_MAX = 16 << 10, BAR = 24 };

#define SHOW_AFTER (500 * USEC_PER_MSEC)

struct image_transfer {
    uint64_t started;
    bool quiet, bar, shown;
    char step[16]; /* step that was printed last */
};

/* ---- progress ---- */

static void image_transfer_draw_bar(uint64_t bytes, uint64_t total)
{
    int full = total ? (int)(bytes * BAR / total) : 0;

    fputc('[', stderr);
    for (int i = 0; i < BAR; i++)
        fputc(i < full ? '#' : '.', stderr);
    fputs("] ", stderr);
}

static void image_transfer_show_progress(struct image_transfer *t, const json_t *p)
{
    const char *step = json_text_of(p, "step");
    uint64_t bytes = json_number_of(p, "bytes"), total = json_number_of(p, "total");
    unsigned long long done = json_number_of(p, "layers_done"), n = json_number_of(p, "layers");
    char has[FORMAT_MAX], all[FORMAT_MAX];
    bool same;

    if (!step || t->quiet || time_mono() - t->started < SHOW_AFTER)
        return;
    same = STREQ(t->step, step);
    snprintf(t->step, sizeof(t->step), "%s", step);
    if (t->bar)
        fputs("\r\033[K", stderr);
    else if (same)
        return;
    t->shown = t->bar;
    if (t->bar && total)
        image_transfer_draw_bar(bytes, total);
    if (total)
        fprintf(stderr, "%s: %llu of %llu layers, %s of %s", t->step, done, n,
                format_size(bytes, has), format_size(total, all));
    else
        fprintf(stderr, "%s: %llu layers", t->step, n);
    fputs(t->bar ? "" : "\n", stderr);
    fflush(stderr);
}

/* ---- the answer: lines, the last of which counts ---- */

static int image_transfer_take_line(struct image_transfer *t, const char *line, size_t len,
                                    json_t **last, struct err *err)
{
    json_t *doc = NULL, *progress;
    int r = json_parse("the daemon's response", line, len, &doc, err);

    if (r < 0)
        return r;
    progress = json_object_get(doc, "progress");
    if (progress) {
        image_transfer_show_progress(t, progress);
        json_decref(doc);
        return 0;
    }
    json_decref(*last);
    *last = doc;
    return 0;
}

static int image_transfer_take_lines(struct image_transfer *t, struct buf *b, json_t **last,
                                     struct err *err)
{
    char *end;

    while ((end = memchr(buf_data(b), '\n', b->len))) {
        size_t len = (size_t)(end - buf_data(b));
        int r = image_transfer_take_line(t, buf_data(b), len, last, err);

        if (r < 0)
            return r;
        buf_consume(b, len + 1);
    }
    return 0;
}

static int image_transfer_read_answer(struct image_transfer *t, struct client *c, json_t **ret,
                                      struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(LINE_MAX_BYTES);
    _cleanup_json_ json_t *last = NULL;
    char piece[4096];
    ssize_t n;
    int r;

    while ((n = client_read(c, piece, sizeof(piece), err)) != 0) {
        if (n < 0)
            return (int)n;
        if (buf_append(&b, piece, (size_t)n) < 0)
            return err_set(err, ERR_LIMIT, "the daemon's response has a line that is too long");
        r = image_transfer_take_lines(t, &b, &last, err);
        if (r < 0)
            return r;
    }
    if (!last)
        return err_set(err, ERR_ENGINE, "the daemon's response ended without a result");
    if (json_object_get(last, "error"))
        return json_to_err(last, err);
    *ret = TAKE_PTR(last);
    return 0;
}

/* for_command: another command needs the image, and stderr is that command's unless it is a
 * terminal. */
static int image_transfer_run(struct cli *cli, const char *target, const json_t *body,
                              bool for_command, json_t **ret, struct err *err)
{
    bool terminal = isatty(STDERR_FILENO);
    struct image_transfer t = {.started = time_mono(),
                               .quiet = cli->json || (for_command && !terminal),
                               .bar = !cli->json && terminal};
    struct client *c;
    int r = cli_client(cli, &c, err);

    if (r < 0)
        return r;
    r = client_ask(c, "POST", target, body, err);
    if (r < 0)
        return r;
    r = image_transfer_read_answer(&t, c, ret, err);
    if (t.shown)
        fputs("\r\033[K", stderr);
    return r;
}

/* ---- credentials ---- */

static int image_transfer_read_password(char **ret, struct err *err)
{
    _cleanup_free_ char *text = xmalloc(PASSWORD_MAX + 1);
    ssize_t n;

    if (isatty(STDIN_FILENO))
        return err_set(err, ERR_INVALID, "--password-stdin: standard input is a terminal");
    n = fd_read_full(STDIN_FILENO, text, PASSWORD_MAX);
    if (n < 0)
        return err_sys(err, (int)-n, "read the password");
    while (n > 0 && strchr("\r\n", text[n - 1]))
        n--;
    text[n] = '\0';
    *ret = TAKE_PTR(text);
    return 0;
}

static int image_transfer_find_credentials(const struct cli_args *args, const char *name,
                                           struct docker_auth *a, struct err *err)
{
    const char *user = args_get(args, "username");
    bool password = args_has(args, "password-stdin");

    if (!user != !password)
        return err_set(err, ERR_INVALID, "--username and --password-stdin must be given together");
    if (!user)
        return docker_auth_find(name, a, err);
    a->username = xstrdup(user);
    return image_transfer_read_password(&a->password, err);
}

/* ---- the commands ---- */

/* remote: the image name that contains the registry. */
static int image_transfer_start(struct cli *cli, const struct cli_args *args, const char *remote,
                                bool push, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *body = NULL;
    _cleanup_docker_auth_ struct docker_auth auth = {0};
    int r = image_transfer_find_credentials(args, remote, &auth, err);

    if (r < 0)
        return r;
    body = json_pack("{s:s, s:s*, s:s*, s:b, s:s*, s:s*}", "name", args->words[1],
                     push ? "to" : "as", args->n_words > 2 ? args->words[2] : NULL, "platform",
                     args_get(args, "platform"), "plain_http", args_has(args, "plain-http"),
                     "username", auth.username, "password", auth.password);
    if (!body)
        return err_set(err, ERR_INVALID, "the name or the password is not valid UTF-8");
    return image_transfer_run(cli, push ? "/v1/images/push" : "/v1/images/pull", body, false, ret,
                              err);
}

int image_pull_quietly(struct cli *cli, const char *name, const char *engine, json_t **ret,
                       struct err *err)
{
    _cleanup_json_ json_t *body = NULL;
    _cleanup_docker_auth_ struct docker_auth auth = {0};
    _cleanup_free_ char *where = client_escape(engine), *target = NULL;
    int r = docker_auth_find(name, &auth, err);

    if (r < 0)
        return r;
    body = json_pack("{s:s, s:s*, s:s*}", "name", name, "username", auth.username, "password",
                     auth.password);
    if (!body)
        return err_set(err, ERR_INVALID, "the name or the password is not valid UTF-8");
    target = xasprintf("/v1/images/pull?engine=%s", where);
    return image_transfer_run(cli, target, body, true, ret, err);
}

int image_pull(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r;

    if (args->n_words < 2 || args->n_words > 3)
        return err_set(err, ERR_INVALID, "usage: ripcord image pull NAME [AS]");
    r = image_transfer_start(cli, args, args->words[1], false, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        image_print_imported(doc);
    return 0;
}

int image_push(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    char size[FORMAT_MAX];
    int r;

    if (args->n_words < 2 || args->n_words > 3)
        return err_set(err, ERR_INVALID, "usage: ripcord image push NAME [DEST]");
    r = image_transfer_start(cli, args, args->words[args->n_words - 1], true, &doc, err);
    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
        return 0;
    }
    output_text(stdout, json_text_of(doc, "name"));
    putchar('@');
    output_text(stdout, json_text_of(doc, "digest"));
    printf(": %llu layers, %s sent\n", (unsigned long long)json_number_of(doc, "layers"),
           format_size(json_number_of(doc, "bytes"), size));
    return 0;
}
