/*
 * Decodes one event. Fields of the wrong type count as absent, because an event is only a hint: the
 * caller reads the real state from the engine.
 */
#include <string.h>

#include "dockerapi/events.h"
#include "lib/base/parse.h"

void docker_event_done(struct docker_event *e)
{
    json_decref(e->doc);
    *e = (struct docker_event){0};
}

const char *docker_event_label(const struct docker_event *e, const char *key)
{
    return json_string_value(json_object_get(e->attributes, key));
}

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

static enum docker_event_type event_type_of(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(types); i++)
        if (STREQ(types[i].name, name))
            return types[i].type;
    return DOCKER_EVENT_OTHER;
}

static enum docker_event_action event_action_of(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_SIZE(actions); i++)
        if (STREQ(actions[i].name, name))
            return actions[i].action;
    return DOCKER_EVENT_ANY_OTHER;
}

static const char *event_text_or_empty(const json_t *obj, const char *key)
{
    const char *s = json_string_value(json_object_get(obj, key));

    return s ? s : "";
}

static int event_exit_code_of(const json_t *attributes)
{
    static const char *const keys[] = {"exitCode", "containerExitCode"};
    uint32_t code;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (parse_u32(event_text_or_empty(attributes, keys[i]), 0, 255, &code, NULL) >= 0)
            return (int)code;
    return -1;
}

static uint64_t event_time_of(const json_t *doc)
{
    json_int_t nano = json_integer_value(json_object_get(doc, "timeNano"));
    json_int_t sec = json_integer_value(json_object_get(doc, "time"));

    if (nano > 0)
        return (uint64_t)nano / 1000;
    return sec > 0 && (uint64_t)sec < UINT64_MAX / USEC_PER_SEC ? (uint64_t)sec * USEC_PER_SEC : 0;
}

void docker_event_decode(json_t *doc, struct docker_event *ret)
{
    const json_t *actor = json_object_get(doc, "Actor");
    const json_t *attributes = json_object_get(actor, "Attributes");
    const char *action = json_string_value(json_object_get(doc, "Action"));

    /* Older versions also have `status` and `id`; Podman 4 has both forms. */
    if (!action)
        action = json_string_value(json_object_get(doc, "status"));
    *ret = (struct docker_event){
        .type = event_type_of(json_string_value(json_object_get(doc, "Type"))),
        .action = event_action_of(action),
        .id = event_text_or_empty(actor, "ID"),
        .name = event_text_or_empty(attributes, "name"),
        .exit_code =
            event_action_of(action) == DOCKER_EVENT_DIE ? event_exit_code_of(attributes) : -1,
        .time = event_time_of(doc),
        .attributes = attributes,
        .doc = doc,
    };
    if (!*ret->id)
        ret->id = event_text_or_empty(doc, "id");
}

json_t *docker_events_filters(const char *label)
{
    json_t *names = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        json_array_append_new(names, json_string(actions[i].name));
    return json_pack("{s:[s], s:[s], s:o}", "type", "container", "label", label, "event", names);
}
