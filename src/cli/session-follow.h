/*
 * Following a session to its end: each event once, in order, through every loss of the connection
 * or the daemon. Ctrl-C cancels the session; a second one kills it.
 */
#pragma once

#include "cli/cli.h"

struct session_follow {
    const char *sandbox, *session;
    uint64_t since; /* the last number that was shown */
    bool stats;
    uint64_t timeout_ms, idle_timeout_ms; /* as asked for, for the words */
};

/* The exit status of the agent, or -ERR_X. */
int session_follow(struct cli *cli, const struct session_follow *o, struct err *err);

/* One event as the API gives it, taken apart in place. */
struct session_event {
    uint64_t seq;
    char stream[16];
    const char *text; /* of the event itself */
    size_t len;
};
int session_event_parse(const char *line, size_t len, struct session_event *ret, struct err *err);
