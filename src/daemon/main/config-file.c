#include "daemon/main/config-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { FILE_MAX = 256 << 10, LIST_MAX = 256 };

struct config_reader {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    config_entry_fn fn;
    void *arg;
};

static int config_file_next_event(struct config_reader *r, struct err *err)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = false;
    if (!yaml_parser_parse(&r->parser, &r->event))
        return err_set(err, ERR_INVALID, "line %zu: invalid YAML (%s)",
                       r->parser.problem_mark.line + 1,
                       r->parser.problem ? r->parser.problem : "unknown problem");
    r->has_event = true;
    return 0;
}

static size_t config_file_line_of(const struct config_reader *r)
{
    return r->event.start_mark.line + 1;
}

static int config_file_unexpected(const struct config_reader *r, const char *wanted,
                                  struct err *err)
{
    return err_set(err, ERR_INVALID, "line %zu: expected %s", config_file_line_of(r), wanted);
}

/* The text of the current scalar. Anchors and tags have no meaning here and are refused. */
static int config_file_scalar(const struct config_reader *r, const char **ret, struct err *err)
{
    const char *text = (const char *)r->event.data.scalar.value;

    if (r->event.type != YAML_SCALAR_EVENT)
        return config_file_unexpected(r, "a plain value", err);
    if (r->event.data.scalar.anchor || r->event.data.scalar.tag)
        return config_file_unexpected(r, "a value without anchor or tag", err);
    if (strlen(text) != r->event.data.scalar.length)
        return config_file_unexpected(r, "a value without NUL bytes", err);
    *ret = text;
    return 0;
}

static int config_file_emit(struct config_reader *r, struct config_entry *e, struct err *err)
{
    if (r->fn(r->arg, e, err) < 0)
        return err_wrap(err, "line %zu", e->line);
    return 0;
}

static int config_file_read_list(struct config_reader *r, const char *key, size_t line,
                                 struct err *err)
{
    _cleanup_strv_ char **items = strv_copy(NULL);
    struct config_entry e = {.key = key, .line = line};
    const char *text;
    int n;

    for (;;) {
        n = config_file_next_event(r, err);
        if (n < 0)
            return n;
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        n = config_file_scalar(r, &text, err);
        if (n < 0)
            return n;
        if (strv_len(items) >= LIST_MAX)
            return err_set(err, ERR_LIMIT, "line %zu: list too long (at most %d items)", line,
                           LIST_MAX);
        strv_add(&items, text);
    }
    e.items = items;
    return config_file_emit(r, &e, err);
}

static int config_file_read_mapping(struct config_reader *r, const char *prefix, struct err *err);

static int config_file_read_value(struct config_reader *r, const char *key, bool nested,
                                  struct err *err)
{
    struct config_entry e = {.key = key, .line = config_file_line_of(r)};
    int n = config_file_next_event(r, err);

    if (n < 0)
        return n;
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return config_file_read_list(r, key, e.line, err);
    if (r->event.type == YAML_MAPPING_START_EVENT && !nested)
        return config_file_read_mapping(r, key, err);
    n = config_file_scalar(r, &e.value, err);
    return n < 0 ? n : config_file_emit(r, &e, err);
}

/* `prefix`: the group, or NULL at the top level, where keys may also be dotted. */
static int config_file_read_mapping(struct config_reader *r, const char *prefix, struct err *err)
{
    const char *text;
    int n;

    for (;;) {
        _cleanup_free_ char *key = NULL;

        n = config_file_next_event(r, err);
        if (n < 0)
            return n;
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        n = config_file_scalar(r, &text, err);
        if (n < 0)
            return n;
        key = prefix ? xasprintf("%s.%s", prefix, text) : xstrdup(text);
        n = config_file_read_value(r, key, prefix != NULL, err);
        if (n < 0)
            return n;
    }
}

static int config_file_read_document(struct config_reader *r, struct err *err)
{
    int n;

    do {
        n = config_file_next_event(r, err);
        if (n < 0)
            return n;
        if (r->event.type == YAML_STREAM_END_EVENT)
            return 0; /* an empty file */
    } while (r->event.type == YAML_STREAM_START_EVENT ||
             r->event.type == YAML_DOCUMENT_START_EVENT);
    if (r->event.type == YAML_MAPPING_START_EVENT)
        n = config_file_read_mapping(r, NULL, err);
    else if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.length != 0)
        n = config_file_unexpected(r, "'key: value'", err);
    if (n < 0)
        return n;
    n = config_file_next_event(r, err); /* document end */
    if (n < 0)
        return n;
    n = config_file_next_event(r, err);
    if (n < 0)
        return n;
    if (r->event.type != YAML_STREAM_END_EVENT)
        return config_file_unexpected(r, "the end of the file (only one document is allowed)", err);
    return 0;
}

int config_file_read(const char *path, config_entry_fn fn, void *arg, struct err *err)
{
    struct config_reader r = {.fn = fn, .arg = arg};
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_free_ char *text = NULL;
    size_t len;
    int n;

    n = file_read(AT_FDCWD, path, FILE_MAX, &text, &len, &why);
    if (n < 0 && why.errnum == ENOENT)
        return 0;
    if (n < 0)
        return err_move(err, &why);
    if (!yaml_parser_initialize(&r.parser))
        return err_set(err, ERR_SYSTEM, "cannot create a YAML parser");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    n = config_file_read_document(&r, err);
    if (r.has_event)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return n < 0 ? err_wrap(err, "'%s'", path) : 0;
}
