/*
 * Follows a session to its end. Each event is printed once and in order, even if the connection or
 * the daemon is lost in between. Ctrl-C cancels the session; a second Ctrl-C kills it.
 */
#pragma once

#include "cli/cli.h"

struct session_follow {
    const char *sandbox, *session;
    uint64_t since; /* print the events after this number */
    bool stats;
    uint64_t timeout_ms, idle_timeout_ms; /* as requested, for messages; or 0 */
};

/* Returns the exit status of the agent, or -ERR_X. */
int session_follow(struct cli *cli, const struct session_follow *o, struct err *err);

/* One event of the API, parsed in place. */
struct session_event {
    uint64_t seq;
    char stream[16];
    const char *text; /* the event itself; borrowed from the line */
    size_t len;
};
int session_event_parse(const char *line, size_t len, struct session_event *ret, struct err *err);
