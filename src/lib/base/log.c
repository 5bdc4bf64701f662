/*
 * One write(2) per line, so that lines of several processes on one log file never mix.
 */
#include "lib/base/log.h"

#include <stdarg.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/text.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { LOG_LINE_MAX = 8192 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static enum log_level max_level = LOG_LEVEL_INFO;
static bool as_json;

void log_set_level(enum log_level level)
{
    max_level = level;
}

int log_parse_level(const char *name, enum log_level *ret, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
        if (STREQ(name, level_names[i])) {
            *ret = (enum log_level)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "'%s' is not a log level (error, warn, info or debug)", name);
}

void log_set_json(bool on)
{
    as_json = on;
}

void log_at(enum log_level level, const char *fmt, ...)
{
    _cleanup_buf_ struct buf line = BUF_INIT(LOG_LINE_MAX);
    _cleanup_free_ char *msg = NULL;
    char stamp[TIME_FORMAT_MAX];
    va_list ap;
    int r;

    if (level > max_level)
        return;
    va_start(ap, fmt);
    msg = xvasprintf(fmt, ap);
    va_end(ap);
    if (strlen(msg) > LOG_LINE_MAX / 8)
        msg[LOG_LINE_MAX / 8] = '\0';

    time_format(time_wall(), stamp);
    if (as_json)
        r = buf_appendf(&line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"", stamp,
                        level_names[level]);
    else
        r = buf_appendf(&line, "%s %-5s ", stamp, level_names[level]);
    if (r == 0)
        r = as_json ? text_escape_json(&line, msg) : text_escape(&line, msg, strlen(msg));
    if (r == 0)
        r = buf_append_str(&line, as_json ? "\"}\n" : "\n");
    if (r == 0)
        (void)fd_write_all(STDERR_FILENO, buf_data(&line), line.len);
}
