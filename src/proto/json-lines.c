#include "proto/json-lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PIECE = 64 << 10 };

void json_lines_done(struct json_lines *l)
{
    l->fd = fd_close(l->fd);
    buf_done(&l->received);
}

bool json_lines_write(struct json_lines *l, json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false), *line = xasprintf("%s\n", text);

    json_decref(doc);
    return fd_write_all(l->fd, line, strlen(line)) >= 0;
}

/* 1; 0: the writer has gone. */
static int json_lines_fill(struct json_lines *l, struct err *err)
{
    char *room = buf_reserve(&l->received, PIECE);
    ssize_t n;

    if (!room)
        return err_set(err, ERR_LIMIT, "a line of JSON is over %d bytes", JSON_LINES_LINE_MAX);
    do
        n = read(l->fd, room, PIECE);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == ECONNRESET) /* the writer has gone without reading its last line */
        return 0;
    if (n < 0)
        return err_sys(err, errno, "read a line");
    buf_commit(&l->received, (size_t)n);
    return n > 0;
}

int json_lines_next(struct json_lines *l, json_t **ret, struct err *err)
{
    for (;;) {
        const char *text = buf_data(&l->received), *end = memchr(text, '\n', l->received.len);
        int r;

        if (end) {
            r = json_parse("a line", text, (size_t)(end - text), ret, err);
            buf_consume(&l->received, (size_t)(end - text) + 1);
            return r < 0 ? r : 1;
        }
        r = json_lines_fill(l, err);
        if (r <= 0)
            return r;
    }
}
