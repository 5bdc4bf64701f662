#include "docker/events.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/xalloc.h"
#include "docker/call.h"

struct docker_events {
    struct docker_stream *stream;
    int stop_fd; /* borrowed */
};

void docker_events_close(struct docker_events *ev)
{
    if (!ev)
        return;
    docker_stream_close(ev->stream);
    free(ev);
}

/* The engine's clock, whose second the stream is asked to begin with; ours when it does not tell.
 */
static time_t engine_time(const struct docker *d, const struct deadline *by)
{
    _cleanup_exchange_ struct exchange x = EXCHANGE_INIT;
    _cleanup_err_ struct err err = ERR_INIT;
    struct tm tm = {0};
    const char *date, *end;

    if (exchange_ask(&x, d, "GET", "/_ping", NULL, by, &err) < 0)
        return time(NULL);
    date = http_field_get(&x.http.head, "Date");
    end = date ? strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &tm) : NULL;
    return end && !*end ? timegm(&tm) : time(NULL);
}

static char *events_path(time_t since, const json_t *filters)
{
    _cleanup_free_ char *text = filters ? json_to_text(filters, false) : NULL;
    _cleanup_free_ char *from = xasprintf("%lld", (long long)since);

    return text ? docker_path("/events?since=%s&filters=%s", from, text)
                : docker_path("/events?since=%s", from);
}

int docker_events_open(const struct docker *d, const json_t *filters, int stop_fd,
                       const struct deadline *by, struct docker_events **ret, struct err *err)
{
    _cleanup_(docker_events_closep) struct docker_events *ev = xnew0(struct docker_events);
    _cleanup_free_ char *path = events_path(engine_time(d, by), filters);
    int r;

    r = docker_stream_open(d, "GET", path, NULL, stop_fd, by, &ev->stream, NULL, err);
    if (r < 0)
        return r;
    ev->stop_fd = stop_fd;
    *ret = TAKE_PTR(ev);
    return 0;
}

static bool asked_to_stop(const struct docker_events *ev)
{
    struct pollfd p = {.fd = ev->stop_fd, .events = POLLIN};

    return ev->stop_fd >= 0 && poll(&p, 1, 0) > 0;
}

int docker_events_next(struct docker_events *ev, struct docker_event *ret, struct err *err)
{
    const struct deadline never = {DEADLINE_NEVER};
    json_t *doc = NULL;
    int r;

    r = docker_stream_next(ev->stream, &never, &doc, err);
    if (r < 0)
        return r;
    if (r == 0) /* an engine that is shut down properly ends its stream properly */
        return asked_to_stop(ev) ? 0 : err_set(err, ERR_ENGINE, "the engine has ended its events");
    docker_event_decode(doc, ret);
    return 1;
}
