#include "image/build/history.h"

#include <inttypes.h>
#include <string.h>

#include "image/dockerfile/ports.h"
#include "lib/base/buf.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define COMMENT "buildkit.dockerfile.v0"
#define EPOCH_MAX UINT64_C(253402300799) /* the end of year 9999 */

/* A line while it is written. The end of a line that is too long is cut off. */
struct history_line {
    const struct dockerfile *df;
    const struct dockerfile_instruction *in;
    const struct dockerfile_config *c;
    const struct build_plan_step *step;
    char *const *args;
    struct buf b;
};

static void build_history_put(struct history_line *w, const char *text)
{
    (void)!buf_append_str(&w->b, text);
}

static char *build_history_expanded(const struct history_line *w, const char *word)
{
    char *ret = NULL;

    return config_expand(w->c, w->df->escape, word, &ret, NULL) < 0 ? xstrdup(word) : ret;
}

/* ---- values in the format of Go ---- */

static void build_history_put_quoted(struct history_line *w, const char *s)
{
    static const char from[] = "\a\b\f\n\r\t\v\\\"", to[] = "abfnrtv\\\"";

    build_history_put(w, "\"");
    for (; *s; s++) {
        const char *known = strchr(from, *s);

        if (known)
            (void)!buf_appendf(&w->b, "\\%c", to[known - from]);
        else if ((unsigned char)*s < ' ' || *s == 0x7f)
            (void)!buf_appendf(&w->b, "\\x%02x", (unsigned char)*s);
        else
            (void)!buf_append_c(&w->b, *s);
    }
    build_history_put(w, "\"");
}

/* ["a" "b"] */
static void build_history_put_quoted_list(struct history_line *w, char *const *v)
{
    build_history_put(w, " [");
    for (size_t i = 0; v && v[i]; i++) {
        build_history_put(w, i ? " " : "");
        build_history_put_quoted(w, v[i]);
    }
    build_history_put(w, "]");
}

/* [a b] */
static void build_history_put_list(struct history_line *w, char *const *v)
{
    _cleanup_free_ char *joined = v ? strv_join(v, " ") : xstrdup("");

    (void)!buf_appendf(&w->b, "[%s]", joined);
}

/* "1.5": without zeros at the end. */
static void build_history_put_decimal(struct history_line *w, int64_t ns, int64_t unit,
                                      const char *name)
{
    char digits[24];
    int64_t whole = ns / unit, rest = ns % unit;
    size_t len = 0;

    (void)!buf_appendf(&w->b, "%" PRId64, whole);
    for (int64_t u = unit / 10; rest && u; rest %= u, u /= 10)
        digits[len++] = (char)('0' + rest / u);
    digits[len] = '\0';
    (void)!buf_appendf(&w->b, "%s%s%s", len ? "." : "", digits, name);
}

static void build_history_put_duration(struct history_line *w, const char *name, int64_t ns)
{
    enum { US = 1000, MS = 1000000, SECOND = 1000000000 };
    const int64_t minute = INT64_C(60) * SECOND, hour = 60 * minute;

    (void)!buf_appendf(&w->b, " %s:", name);
    if (ns && ns < SECOND) {
        build_history_put_decimal(w, ns,
                                  ns < US   ? 1
                                  : ns < MS ? US
                                            : MS,
                                  ns < US   ? "ns"
                                  : ns < MS ? "µs"
                                            : "ms");
        return;
    }
    if (ns >= hour)
        (void)!buf_appendf(&w->b, "%" PRId64 "h", ns / hour);
    if (ns >= minute)
        (void)!buf_appendf(&w->b, "%" PRId64 "m", ns % hour / minute);
    build_history_put_decimal(w, ns % minute, SECOND, "s");
}

/* ---- instructions ---- */

static void build_history_put_pairs(struct history_line *w)
{
    char *const *now = w->in->kind == DOCKERFILE_ENV ? w->c->env : w->c->labels;

    for (size_t i = 0; i + 1 < w->in->n_words; i += 2) {
        _cleanup_free_ char *key = build_history_expanded(w, w->in->words[i].text);
        const char *value = strv_env_get(now, key);

        (void)!buf_appendf(&w->b, " %s=%s", key, value ? value : "");
    }
}

static void build_history_put_args(struct history_line *w)
{
    for (size_t i = 0; i < w->in->n_words; i++) {
        _cleanup_free_ char *name =
            xstrndup(w->in->words[i].text, strcspn(w->in->words[i].text, "="));
        const char *value = config_get(w->c, name);

        (void)!buf_appendf(&w->b, " %s%s%s", name, value ? "=" : "", value ? value : "");
    }
}

/* RUN |2 A=1 B=2 /bin/sh -c command # buildkit */
static void build_history_put_run(struct history_line *w)
{
    _cleanup_free_ char *command = strv_join(w->step->argv, " ");

    if (w->args)
        (void)!buf_appendf(&w->b, " |%zu", strv_len(w->args));
    for (char *const *a = w->args; a && *a; a++) {
        const char *value = config_get(w->c, *a);

        (void)!buf_appendf(&w->b, " %s=%s", *a, value ? value : "");
    }
    (void)!buf_appendf(&w->b, " %s # buildkit", command);
}

static void build_history_put_copy(struct history_line *w)
{
    _cleanup_free_ char *dest = build_history_expanded(w, w->in->words[w->in->n_words - 1].text);

    build_history_put(w, w->step->parents ? " --parents" : "");
    for (char **s = w->step->written; s && *s; s++)
        (void)!buf_appendf(&w->b, " %s", *s);
    for (size_t i = 0; i < w->step->n_files; i++)
        (void)!buf_appendf(&w->b, " <<%s", w->step->files[i].name);
    (void)!buf_appendf(&w->b, " %s # buildkit", dest);
}

static void build_history_put_ports(struct history_line *w)
{
    _cleanup_strv_ char **ports = NULL;

    for (size_t i = 0; i < w->in->n_words; i++) {
        _cleanup_free_ char *text = build_history_expanded(w, w->in->words[i].text);
        char *rest = text;

        for (char *spec; (spec = strsep(&rest, " \t"));)
            if (*spec)
                (void)!ports_add(spec, &ports, NULL);
    }
    build_history_put(w, " ");
    build_history_put_list(w, ports);
}

static void build_history_put_words(struct history_line *w)
{
    _cleanup_strv_ char **words = NULL;

    for (size_t i = 0; i < w->in->n_words; i++)
        strv_push(&words, build_history_expanded(w, w->in->words[i].text));
    build_history_put(w, " ");
    build_history_put_list(w, words);
}

static void build_history_put_health(struct history_line *w)
{
    const struct config_health *h = &w->c->health;

    build_history_put(w, " {Test:");
    build_history_put_list(w, h->test);
    build_history_put_duration(w, "Interval", h->interval);
    build_history_put_duration(w, "Timeout", h->timeout);
    build_history_put_duration(w, "StartPeriod", h->start_period);
    build_history_put_duration(w, "StartInterval", h->start_interval);
    (void)!buf_appendf(&w->b, " Retries:%d}", h->retries);
}

static void build_history_put_one(struct history_line *w, const char *value)
{
    (void)!buf_appendf(&w->b, " %s", value ? value : "");
}

static void build_history_put_arguments(struct history_line *w)
{
    switch (w->in->kind) {
    case DOCKERFILE_ENV:
    case DOCKERFILE_LABEL:
        return build_history_put_pairs(w);
    case DOCKERFILE_ARG:
        return build_history_put_args(w);
    case DOCKERFILE_RUN:
        return build_history_put_run(w);
    case DOCKERFILE_ADD:
    case DOCKERFILE_COPY:
        return build_history_put_copy(w);
    case DOCKERFILE_CMD:
        return build_history_put_quoted_list(w, w->c->cmd);
    case DOCKERFILE_ENTRYPOINT:
        return build_history_put_quoted_list(w, w->c->entrypoint);
    case DOCKERFILE_SHELL:
        build_history_put(w, " ");
        return build_history_put_list(w, w->c->shell);
    case DOCKERFILE_EXPOSE:
        return build_history_put_ports(w);
    case DOCKERFILE_VOLUME:
        return build_history_put_words(w);
    case DOCKERFILE_HEALTHCHECK:
        return build_history_put_health(w);
    case DOCKERFILE_WORKDIR:
        return build_history_put_one(w, w->c->workdir);
    case DOCKERFILE_USER:
        return build_history_put_one(w, w->c->user);
    case DOCKERFILE_STOPSIGNAL:
        return build_history_put_one(w, w->c->stop_signal);
    case DOCKERFILE_MAINTAINER:
        return build_history_put_one(w, w->c->author);
    case DOCKERFILE_FROM:
    case DOCKERFILE_ONBUILD:
        return;
    }
}

char *history_text(const struct dockerfile *df, const struct dockerfile_instruction *in,
                   const struct dockerfile_config *c, const struct build_plan_step *step,
                   char *const *args)
{
    struct history_line w = {df, in, c, step, args, BUF_INIT(HISTORY_MAX)};

    if (in->kind == DOCKERFILE_ONBUILD || in->kind == DOCKERFILE_FROM)
        return NULL;
    build_history_put(&w, dockerfile_kind_name(in->kind));
    build_history_put_arguments(&w);
    return buf_steal(&w.b);
}

/* ---- lines ---- */

/* A Dockerfile may have invalid UTF-8, which JSON does not allow. */
static json_t *build_history_json_of(const char *text)
{
    _cleanup_buf_ struct buf b = BUF_INIT(HISTORY_MAX * 3 + 1);
    size_t len = strlen(text);

    for (size_t n; len; text += n, len -= n) {
        unsigned c;

        n = text_utf8_next(text, len, &c);
        (void)!(n ? buf_append(&b, text, n) : buf_append_str(&b, "\xef\xbf\xbd"));
        n = n ? n : 1;
    }
    return json_string(b.len ? buf_data(&b) : "");
}

void history_add(json_t *list, const char *text, bool layer, const char *created)
{
    json_t *line = json_object();

    json_object_set_new(line, "created_by", build_history_json_of(text));
    json_object_set_new(line, "comment", json_string(COMMENT));
    if (!layer)
        json_object_set_new(line, "empty_layer", json_true());
    if (created)
        json_object_set_new(line, "created", json_string(created));
    json_array_append_new(list, line);
}

/* Copies only the fields of the image spec. */
static json_t *build_history_known_line(const json_t *line)
{
    static const char *const texts[] = {"created", "created_by", "author", "comment"};
    json_t *ret = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        json_t *v = json_object_get(line, texts[i]);

        if (json_is_string(v) && json_string_length(v))
            json_object_set(ret, texts[i], v);
    }
    if (json_is_true(json_object_get(line, "empty_layer")))
        json_object_set_new(ret, "empty_layer", json_true());
    return ret;
}

static json_t *build_history_known_lines(const json_t *history, size_t *ret_layers)
{
    json_t *list = json_array(), *line;
    size_t i;

    *ret_layers = 0;
    json_array_foreach (history, i, line) {
        json_array_append_new(list, build_history_known_line(line));
        *ret_layers += !json_is_true(json_object_get(line, "empty_layer"));
    }
    return list;
}

json_t *history_of_base(const json_t *history, size_t n_layers)
{
    size_t found;
    json_t *list = build_history_known_lines(history, &found);
    _cleanup_free_ char *text = json_to_text(list, false);

    if (found == n_layers && strlen(text) <= HISTORY_MAX)
        return list;
    json_array_clear(list);
    while (n_layers--)
        json_array_append_new(list, json_pack("{s:s}", "comment", "of an image without a history"));
    return list;
}

/* ---- times ---- */

void history_fill_times(json_t *list)
{
    json_t *line, *time, *last = NULL;
    bool gap = false;
    size_t i;

    json_array_foreach (list, i, line) {
        time = json_object_get(line, "created");
        if (time)
            last = time;
        if (time && gap)
            break; /* the first new layer's */
        gap = gap || !time;
    }
    gap = false;
    json_array_foreach (list, i, line) {
        time = json_object_get(line, "created");
        if (time && gap)
            last = time;
        gap = gap || !time;
        if (!time && last)
            json_object_set(line, "created", last);
    }
}

int history_epoch(char *const *args, char **ret, struct err *err)
{
    const char *given = strv_env_get(args, "SOURCE_DATE_EPOCH");
    char text[TIME_FORMAT_MAX];
    uint64_t seconds;
    int r;

    *ret = NULL;
    if (!given || !*given)
        return 0;
    r = parse_u64(given, 0, EPOCH_MAX, &seconds, err);
    if (r < 0)
        return err_wrap(err, "build argument SOURCE_DATE_EPOCH");
    *ret = xstrdup(time_format(seconds * USEC_PER_SEC, text));
    return 0;
}
