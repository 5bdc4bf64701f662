#include "cli/state.h"

#include <string.h>

#include "lib/base/time.h"

enum output_color state_color(const char *state)
{
    if (!state)
        return COLOR_NONE;
    if (STREQ(state, "running"))
        return COLOR_GREEN;
    if (STREQ(state, "failed"))
        return COLOR_RED;
    if (STREQ(state, "stopped") || STREQ(state, "ended"))
        return COLOR_DIM;
    return COLOR_YELLOW;
}

const char *state_end(const json_t *exec, char buf[static STATE_END_MAX])
{
    const json_t *end = json_object_get(exec, "end");
    const char *cause = json_text_of(end, "cause"), *state = json_text_of(exec, "state");
    const char *signal = json_text_of(end, "signal");

    if (!cause)
        snprintf(buf, STATE_END_MAX, "%.40s", state ? state : "-");
    else if (STREQ(cause, "exited"))
        snprintf(buf, STATE_END_MAX, "exit %d",
                 (int)json_integer_value(json_object_get(end, "exit_code")));
    else if (STREQ(cause, "signaled") && signal)
        snprintf(buf, STATE_END_MAX, "signal %.30s", signal);
    else
        snprintf(buf, STATE_END_MAX, "%.40s", cause);
    return buf;
}

/* Rounds down to seconds, or to milliseconds below one second. */
static uint64_t cli_state_coarse(uint64_t usec)
{
    return usec < USEC_PER_SEC ? usec / USEC_PER_MSEC * USEC_PER_MSEC
                               : usec / USEC_PER_SEC * USEC_PER_SEC;
}

const char *state_duration(const json_t *exec, char buf[static FORMAT_MAX])
{
    const json_t *end = json_object_get(exec, "end");
    uint64_t from = output_parse_time(json_text_of(exec, "started_at")), now = time_wall();

    if (json_is_object(end))
        return format_duration(cli_state_coarse(json_number_of(end, "wall_ms") * USEC_PER_MSEC),
                               buf);
    if (!from || now < from) {
        snprintf(buf, FORMAT_MAX, "-");
        return buf;
    }
    return format_duration(cli_state_coarse(now - from), buf);
}
