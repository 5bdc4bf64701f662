/*
 * One table ties each key to its place in the struct. Writing and reading use the same table, so
 * they cannot drift apart. Unknown keys of a newer writer are skipped; a missing key is zero.
 */
#include "lib/journal/record.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/text.h"

#define RECORD_FILE "end"
enum { RECORD_MAX = 8 << 10 };

static const char *const cause_names[END_CAUSE_MAX] = {
    [END_EXITED] = "exited",
    [END_SIGNALED] = "signaled",
    [END_OOM] = "oom",
    [END_PIDS_LIMIT] = "pids_limit",
    [END_TIMEOUT] = "timeout",
    [END_IDLE_TIMEOUT] = "idle_timeout",
    [END_KILLED] = "killed",
    [END_SANDBOX_STOPPED] = "sandbox_stopped",
    [END_ENGINE_LOST] = "engine_lost",
    [END_START_FAILED] = "start_failed",
};

/* clang-format off */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
#define NUMBER(member) {#member, offsetof(struct end_record, member)}
    NUMBER(started_wall), NUMBER(ended_wall), NUMBER(wall_usec), NUMBER(cpu_usec),
    NUMBER(memory_peak), NUMBER(memory_limit), NUMBER(oom_kills), NUMBER(pids_denied),
    NUMBER(io_read), NUMBER(io_write), NUMBER(stdout_bytes), NUMBER(stderr_bytes),
    NUMBER(stdout_dropped), NUMBER(stderr_dropped),
#undef NUMBER
};
/* clang-format on */

const char *end_cause_name(enum end_cause cause)
{
    return (unsigned)cause < END_CAUSE_MAX ? cause_names[cause] : "unknown";
}

int end_cause_parse(const char *name, enum end_cause *ret)
{
    for (int i = 0; i < END_CAUSE_MAX; i++) {
        if (STREQ(cause_names[i], name)) {
            *ret = (enum end_cause)i;
            return 0;
        }
    }
    return -ERR_INVALID;
}

int end_record_status(const struct end_record *rec)
{
    if (rec->cause == END_START_FAILED)
        return rec->error == ERR_NOT_FOUND ? 127 : rec->error == ERR_DENIED ? 126 : 125;
    if (rec->exit_code >= 0)
        return rec->exit_code;
    if (rec->signal > 0)
        return 128 + rec->signal;
    return 125; /* engine_lost: the status is unknown */
}

static int record_format_words(struct buf *b, const char *key, const char *words, size_t max)
{
    int r;

    if (!*words)
        return 0;
    r = buf_append_str(b, key);
    if (r < 0)
        return r;
    r = text_escape(b, words, strnlen(words, max));
    if (r < 0)
        return r;
    return buf_append_c(b, '\n');
}

int end_record_format(const struct end_record *rec, struct buf *b)
{
    if (buf_appendf(b, "version=1\ncause=%s\n", end_cause_name(rec->cause)) < 0 ||
        (rec->exit_code >= 0 && buf_appendf(b, "exit_code=%d\n", rec->exit_code) < 0) ||
        (rec->signal > 0 && buf_appendf(b, "signal=%d\n", rec->signal) < 0))
        return -ERR_LIMIT;
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        uint64_t v = *(const uint64_t *)((const char *)rec + numbers[i].offset);

        if (buf_appendf(b, "%s=%llu\n", numbers[i].key, (unsigned long long)v) < 0)
            return -ERR_LIMIT;
    }
    if (buf_appendf(b, "drained=%d\n", rec->drained) < 0 ||
        (rec->error != ERR_NONE && buf_appendf(b, "error=%s\n", err_code_name(rec->error)) < 0) ||
        record_format_words(b, "message=", rec->message, sizeof(rec->message)) < 0 ||
        record_format_words(b, "hint=", rec->hint, sizeof(rec->hint)) < 0 ||
        record_format_words(b, "isolation=", rec->isolation, sizeof(rec->isolation)) < 0)
        return -ERR_LIMIT;
    return 0;
}

static int record_take_number(struct end_record *rec, const char *key, const char *value,
                              struct err *err)
{
    uint64_t v;
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (!STREQ(key, numbers[i].key))
            continue;
        r = parse_u64(value, 0, UINT64_MAX, &v, err);
        if (r < 0)
            return r;
        *(uint64_t *)((char *)rec + numbers[i].offset) = v;
        return 0;
    }
    return 0;
}

static int record_take_line(struct end_record *rec, const char *key, const char *value,
                            struct err *err)
{
    uint32_t v = 0;
    int r = 0;

    if (STREQ(key, "cause")) {
        if (end_cause_parse(value, &rec->cause) < 0)
            return err_set(err, ERR_INVALID, "end record: unknown cause '%s'", value);
    } else if (STREQ(key, "exit_code")) {
        r = parse_u32(value, 0, 255, &v, err);
        rec->exit_code = (int)v;
    } else if (STREQ(key, "signal")) {
        r = parse_u32(value, 1, 64, &v, err);
        rec->signal = (int)v;
    } else if (STREQ(key, "drained")) {
        r = parse_u32(value, 0, 1, &v, err);
        rec->drained = v != 0;
    } else if (STREQ(key, "error")) {
        rec->error = err_code_from_name(value);
    } else if (STREQ(key, "message")) {
        snprintf(rec->message, sizeof(rec->message), "%s", value);
    } else if (STREQ(key, "isolation")) {
        snprintf(rec->isolation, sizeof(rec->isolation), "%s", value);
    } else if (STREQ(key, "hint")) {
        snprintf(rec->hint, sizeof(rec->hint), "%s", value);
    } else {
        r = record_take_number(rec, key, value, err);
    }
    if (r < 0)
        err_wrap(err, "end record: %s", key);
    return r;
}

int end_record_parse(const char *text, size_t len, struct end_record *ret, struct err *err)
{
    struct end_record rec = {.cause = END_CAUSE_MAX, .exit_code = -1};
    _cleanup_buf_ struct buf copy = BUF_INIT(RECORD_MAX);
    char *p, *line;

    if (memchr(text, 0, len) || buf_append(&copy, text, len) < 0)
        return err_set(err, ERR_INVALID, "end record holds a NUL or is larger than %d bytes",
                       RECORD_MAX);
    p = buf_data(&copy);
    while ((line = strsep(&p, "\n")) && p) {
        char *eq = strchr(line, '=');
        int r;

        if (!eq)
            return err_set(err, ERR_INVALID, "end record: line '%s' has no '='", line);
        *eq = '\0';
        r = record_take_line(&rec, line, eq + 1, err);
        if (r < 0)
            return r;
    }
    if (rec.cause == END_CAUSE_MAX || (line && *line))
        return err_set(err, ERR_INVALID, "end record is incomplete");
    *ret = rec;
    return 0;
}

int end_record_write(int exec_dirfd, const struct end_record *rec, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(RECORD_MAX);

    if (end_record_format(rec, &b) < 0)
        return err_set(err, ERR_LIMIT, "end record is larger than %d bytes", RECORD_MAX);
    return file_replace(exec_dirfd, RECORD_FILE, buf_data(&b), b.len, 0600, false, err);
}

int end_record_read(int exec_dirfd, struct end_record *ret, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_free_ char *text = NULL;
    size_t len;
    int r;

    r = file_read(exec_dirfd, RECORD_FILE, RECORD_MAX, &text, &len, &why);
    if (r < 0 && why.errnum == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "no end record");
    if (r < 0)
        return err_move(err, &why);
    return end_record_parse(text, len, ret, err);
}
