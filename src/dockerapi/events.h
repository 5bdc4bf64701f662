/*
 * The engine's event stream, decoded alike for Docker (with and without the `status` fields
 * that 1.52 dropped) and Podman (which says `remove` for destroy and `died` here and there). A
 * thread sits in docker_events_next(); writing to the eventfd it was given brings it back.
 *
 * Order that loses nothing: open, then read the state of all objects, then follow. Events are news
 * that something changed, not the change: after -ERR_ENGINE open again and read the state again.
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
    DOCKER_EVENT_DESTROY, /* container, network, volume: it is gone */
};

struct docker_event {
    enum docker_event_type type;
    enum docker_event_action action;
    const char *id, *name;    /* borrowed from doc; "" when absent */
    int exit_code;            /* of die; -1 when not told */
    uint64_t time;            /* wall clock of the engine, microseconds; 0 when not told */
    const json_t *attributes; /* labels among them; borrowed from doc, may be NULL */
    json_t *doc;              /* owned */
};
/* Takes the document, whatever it is. */
void docker_event_decode(json_t *doc, struct docker_event *ret);
void docker_event_done(struct docker_event *e);
const char *docker_event_label(const struct docker_event *e, const char *key); /* NULL: none */

struct docker_events;

/* What happens to containers with that label ("ripcord.root=…"), without their execs. The names of
 * both engines stand in it: Podman calls some events otherwise when it filters than when it tells
 * them. */
json_t *docker_events_filters(const char *label);

/*
 * filters: as made above, or of your own, or NULL for all; stop_fd: readable ends the waiting. The
 * engine is asked for what happened since just before, because Docker answers a moment before it
 * subscribes: an event may come twice, none is missed.
 */
int docker_events_open(const struct docker *d, const json_t *filters, int stop_fd,
                       const struct deadline *by, struct docker_events **ret, struct err *err);
/* 1: *ret is filled, to be released by docker_event_done(). 0: stopped. -ERR_ENGINE: the stream has
 * ended or broken off. */
int docker_events_next(struct docker_events *ev, struct docker_event *ret, struct err *err);
void docker_events_close(struct docker_events *ev); /* NULL is fine */

DEFINE_CLEANUP(struct docker_events *, docker_events_close);
