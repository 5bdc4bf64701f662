#include "dockerapi/events.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "dockerapi/call.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

struct docker_events {
    struct docker_stream *stream;
};

void docker_events_close(struct docker_events *ev)
{
    if (!ev)
        return;
    docker_stream_close(ev->stream);
    free(ev);
}

/* The time on the engine's clock, where the stream starts; our clock if the engine sends no
 * Date. */
static int dockerapi_events_engine_time(const struct docker *d, const struct deadline *by,
                                        time_t *ret, struct err *err)
{
    _cleanup_exchange_ struct exchange x = EXCHANGE_INIT;
    _cleanup_err_ struct err own = ERR_INIT;
    const char *date;
    int64_t said;

    if (exchange_ask(&x, d, "GET", "/_ping", NULL, by, &own) < 0)
        return err_move(err, &own);
    date = http_field_get(&x.http.head, "Date");
    *ret = date && time_http_parse(date, &said) ? (time_t)said : time(NULL);
    return 0;
}

int docker_events_open(const struct docker *d, const json_t *filters, int stop_fd,
                       const struct deadline *by, struct docker_events **ret, struct err *err)
{
    _cleanup_(docker_events_closep) struct docker_events *ev = xnew0(struct docker_events);
    _cleanup_free_ char *path = NULL, *from = NULL, *text = NULL;
    time_t since = 0;
    int r;

    r = dockerapi_events_engine_time(d, by, &since, err);
    if (r < 0)
        return r;
    from = xasprintf("%lld", (long long)since);
    text = filters ? json_to_text(filters, false) : NULL;
    path = text ? docker_path("/events?since=%s&filters=%s", from, text)
                : docker_path("/events?since=%s", from);
    r = docker_stream_open(d, "GET", path, NULL, stop_fd, by, &ev->stream, NULL, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(ev);
    return 0;
}

int docker_events_next(struct docker_events *ev, struct docker_event *ret, struct err *err)
{
    const struct deadline never = {DEADLINE_NEVER};
    json_t *doc = NULL;
    int r;

    r = docker_stream_next(ev->stream, &never, &doc, err);
    if (r < 0)
        return r;
    if (r == 0) /* an engine that shuts down also ends the stream properly */
        return docker_stream_stopped(ev->stream)
                   ? 0
                   : err_set(err, ERR_ENGINE, "the engine has closed the event stream");
    docker_event_decode(doc, ret);
    return 1;
}
