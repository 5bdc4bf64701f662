#include "daemon/core/exec/end-record-json.h"

#include "lib/base/parse.h"
#include "lib/base/time.h"

static void end_record_json_put_u64(json_t *o, const char *key, uint64_t v)
{
    json_object_set_new(o, key, json_integer((json_int_t)v));
}

/* Signals without a name (real-time ones) are given by number. */
static json_t *end_record_json_signal(int sig)
{
    const char *name = signal_name(sig);

    if (!sig)
        return json_null();
    return name ? json_string(name) : json_sprintf("%d", sig);
}

static void end_record_json_put_figures(json_t *o, const struct end_record *rec)
{
    end_record_json_put_u64(o, "wall_ms", rec->wall_usec / USEC_PER_MSEC);
    end_record_json_put_u64(o, "cpu_ms", rec->cpu_usec / USEC_PER_MSEC);
    end_record_json_put_u64(o, "memory_peak", rec->memory_peak);
    end_record_json_put_u64(o, "memory_limit", rec->memory_limit);
    end_record_json_put_u64(o, "oom_kills", rec->oom_kills);
    end_record_json_put_u64(o, "pids_denied", rec->pids_denied);
    end_record_json_put_u64(o, "io_read", rec->io_read);
    end_record_json_put_u64(o, "io_write", rec->io_write);
    end_record_json_put_u64(o, "stdout_bytes", rec->stdout_bytes);
    end_record_json_put_u64(o, "stderr_bytes", rec->stderr_bytes);
    end_record_json_put_u64(o, "stdout_dropped", rec->stdout_dropped);
    end_record_json_put_u64(o, "stderr_dropped", rec->stderr_dropped);
}

static json_t *end_record_json_oom(const struct end_record *rec)
{
    char limit[FORMAT_MAX], peak[FORMAT_MAX];

    format_size(rec->memory_peak, peak);
    if (!rec->memory_limit)
        return json_sprintf("out of memory: the command was killed (peak %s)", peak);
    format_size(rec->memory_limit, limit);
    return json_sprintf("out of memory: the command was killed at its limit of %s (peak %s)", limit,
                        peak);
}

static json_t *end_record_json_signaled(const struct end_record *rec)
{
    _cleanup_json_ json_t *name = end_record_json_signal(rec->signal);

    return json_sprintf("the command was killed by signal %s",
                        json_is_string(name) ? json_string_value(name) : "?");
}

/* Why the command did not exit by itself. Supervisors give a message only for what the cause does
 * not say. */
static json_t *end_record_json_message(const struct end_record *rec)
{
    char wall[FORMAT_MAX];

    if (*rec->message)
        return json_string(rec->message);
    format_duration(rec->wall_usec, wall);
    switch (rec->cause) {
    case END_SIGNALED:
        return end_record_json_signaled(rec);
    case END_OOM:
        return end_record_json_oom(rec);
    case END_PIDS_LIMIT:
        return json_sprintf("the command failed: process limit reached (%llu forks refused)",
                            (unsigned long long)rec->pids_denied);
    case END_TIMEOUT:
        return json_sprintf("timeout: the command was killed after %s", wall);
    case END_IDLE_TIMEOUT:
        return json_sprintf("idle timeout: the command was killed after %s, without output at the "
                            "end",
                            wall);
    case END_KILLED:
        return json_string("the command was killed on request");
    case END_SANDBOX_STOPPED:
        return json_string("the sandbox was stopped while the command ran");
    case END_ENGINE_LOST:
        return json_string("the engine lost the command; its exit status is unknown");
    case END_START_FAILED:
        return json_string("the command could not be started");
    case END_EXITED:
    case END_CAUSE_MAX:
        break;
    }
    return json_null();
}

json_t *end_record_to_json(const struct end_record *rec)
{
    json_t *o = json_object();

    json_object_set_new(o, "cause", json_string(end_cause_name(rec->cause)));
    json_object_set_new(o, "exit_code",
                        rec->exit_code >= 0 ? json_integer(rec->exit_code) : json_null());
    json_object_set_new(o, "signal", end_record_json_signal(rec->signal));
    json_object_set_new(o, "status", json_integer(end_record_status(rec)));
    end_record_json_put_figures(o, rec);
    json_object_set_new(o, "drained", json_boolean(rec->drained));
    json_object_set_new(o, "message", end_record_json_message(rec));
    json_object_set_new(o, "hint", *rec->hint ? json_string(rec->hint) : json_null());
    if (*rec->isolation) /* left out for the usual one, as in specs */
        json_object_set_new(o, "isolation", json_string(rec->isolation));
    json_object_set_new(o, "started_at", json_from_time(rec->started_wall));
    json_object_set_new(o, "ended_at", json_from_time(rec->ended_wall));
    return o;
}

void end_record_make(struct end_record *ret, enum end_cause cause, enum err_code error,
                     const char *why, uint64_t started_wall)
{
    *ret = (struct end_record){
        .cause = cause,
        .exit_code = -1,
        .error = error,
        .started_wall = started_wall,
        .ended_wall = time_wall(),
    };
    snprintf(ret->message, sizeof(ret->message), "%s", why);
}
