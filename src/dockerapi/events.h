/*
 * The engine's event stream. The decoded events are the same for Docker (with and without the
 * `status` fields that API 1.52 removed) and Podman (which uses `remove` for destroy and sometimes
 * `died` for die). A thread waits in docker_events_next(); a write to the stop eventfd ends the
 * wait.
 *
 * To miss nothing: open the stream, then read the state of all objects, then follow the events. An
 * event only says that something changed. After -ERR_ENGINE, open again and read the state again.
 */
#pragma once

#include "dockerapi/docker.h"

enum docker_event_type {
    DOCKER_EVENT_CONTAINER,
    DOCKER_EVENT_NETWORK,
    DOCKER_EVENT_VOLUME,
    DOCKER_EVENT_IMAGE,
    DOCKER_EVENT_OTHER,
};

enum docker_event_action {
    DOCKER_EVENT_ANY_OTHER,
    DOCKER_EVENT_CREATE,
    DOCKER_EVENT_START,
    DOCKER_EVENT_DIE,
    DOCKER_EVENT_OOM,
    DOCKER_EVENT_PAUSE,
    DOCKER_EVENT_UNPAUSE,
    DOCKER_EVENT_RENAME,
    DOCKER_EVENT_DESTROY, /* a container, network or volume was removed */
};

struct docker_event {
    enum docker_event_type type;
    enum docker_event_action action;
    const char *id, *name;    /* borrowed from doc; "" when absent */
    int exit_code;            /* of die; -1: unknown */
    uint64_t time;            /* wall clock of the engine, microseconds; 0: unknown */
    const json_t *attributes; /* labels among them; borrowed from doc, may be NULL */
    json_t *doc;              /* owned */
};
/* Takes the document, also if it is not a valid event. */
void docker_event_decode(json_t *doc, struct docker_event *ret);
void docker_event_done(struct docker_event *e);
const char *docker_event_label(const struct docker_event *e, const char *key); /* NULL: none */

struct docker_events;

/* A filter for events of containers with that label ("ripcord.root=…"), without their execs. It has
 * the names of both engines, because Podman's filters use other names than its events. */
json_t *docker_events_filters(const char *label);

/*
 * filters: the one above, another one, or NULL for all events. stop_fd: when readable, the waiting
 * ends. The stream starts a moment in the past, because Docker answers before it subscribes. An
 * event may therefore arrive twice, but none is missed.
 */
int docker_events_open(const struct docker *d, const json_t *filters, int stop_fd,
                       const struct deadline *by, struct docker_events **ret, struct err *err);
/* 1: *ret is filled; release it with docker_event_done(). 0: stopped. -ERR_ENGINE: the stream has
 * ended or broken. */
int docker_events_next(struct docker_events *ev, struct docker_event *ret, struct err *err);
void docker_events_close(struct docker_events *ev); /* accepts NULL */

DEFINE_CLEANUP(struct docker_events *, docker_events_close);
