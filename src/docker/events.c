#include "docker/events.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"
#include "base/xalloc.h"
#include "docker/call.h"

struct docker_events {
    struct docker_stream *stream;
    int stop_fd; /* borrowed */
};

void docker_event_done(struct docker_event *e)
{
    json_decref(e->doc);
    *e = (struct docker_event){0};
}

const char *docker_event_label(const struct docker_event *e, const char *key)
{
    return json_string_value(json_object_get(e->attributes, key));
}

void docker_events_close(struct docker_events *ev)
{
    if (!ev)
        return;
    docker_stream_close(ev->stream);
    free(ev);
}

/* ---- decoding ---- */

/* clang-format off */
static const struct {
    const char *name;
    enum docker_event_type type;
} types[] = {
    {"container", DOCKER_EVENT_CONTAINER},
    {"network", DOCKER_EVENT_NETWORK},
    {"volume", DOCKER_EVENT_VOLUME},
    {"image", DOCKER_EVENT_IMAGE},
};

static const struct {
    const char *name;
    enum docker_event_action action;
} actions[] = {
    {"create", DOCKER_EVENT_CREATE},
    {"start", DOCKER_EVENT_START},
    {"die", DOCKER_EVENT_DIE},
    {"died", DOCKER_EVENT_DIE},
    {"oom", DOCKER_EVENT_OOM},
    {"pause", DOCKER_EVENT_PAUSE},
    {"unpause", DOCKER_EVENT_UNPAUSE},
    {"rename", DOCKER_EVENT_RENAME},
    {"destroy", DOCKER_EVENT_DESTROY},
    {"remove", DOCKER_EVENT_DESTROY},
};
/* clang-format on */

static enum docker_event_type type_of(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(types); i++)
        if (STREQ(types[i].name, name))
            return types[i].type;
    return DOCKER_EVENT_OTHER;
}

static enum docker_event_action action_of(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(actions); i++)
        if (STREQ(actions[i].name, name))
            return actions[i].action;
    return DOCKER_EVENT_ANY_OTHER;
}

static const char *text_or_empty(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : "";
}

static int exit_code_of(const json_t *attributes)
{
    static const char *const keys[] = {"exitCode", "containerExitCode"};
    uint32_t code;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (parse_u32(text_or_empty(attributes, keys[i]), 0, 255, &code, NULL) >= 0)
            return (int)code;
    return -1;
}

static uint64_t time_of(const json_t *doc)
{
    json_int_t nano = json_integer_value(json_object_get(doc, "timeNano"));
    json_int_t sec = json_integer_value(json_object_get(doc, "time"));

    if (nano > 0)
        return (uint64_t)nano / 1000;
    return sec > 0 && (uint64_t)sec < UINT64_MAX / USEC_PER_SEC ? (uint64_t)sec * USEC_PER_SEC : 0;
}

/* Takes the document. */
static void decode(json_t *doc, struct docker_event *ret)
{
    const json_t *actor = json_object_get(doc, "Actor");
    const json_t *attributes = json_object_get(actor, "Attributes");
    const char *action = json_string_value(json_object_get(doc, "Action"));

    /* Older forms carry `status` and `id` beside these; Podman 4 has both too. */
    if (!action)
        action = json_string_value(json_object_get(doc, "status"));
    *ret = (struct docker_event){
        .type = type_of(json_string_value(json_object_get(doc, "Type"))),
        .action = action_of(action),
        .id = text_or_empty(actor, "ID"),
        .name = text_or_empty(attributes, "name"),
        .exit_code = action_of(action) == DOCKER_EVENT_DIE ? exit_code_of(attributes) : -1,
        .time = time_of(doc),
        .attributes = attributes,
        .doc = doc,
    };
    if (!*ret->id)
        ret->id = text_or_empty(doc, "id");
}

/* ---- the stream ---- */

json_t *docker_events_filters(const char *label)
{
    json_t *names = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        json_array_append_new(names, json_string(actions[i].name));
    return json_pack("{s:[s], s:[s], s:o}", "type", "container", "label", label, "event", names);
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
    decode(doc, ret);
    return 1;
}
