/*
 * All deadlines share one timerfd, which is set to the earliest. When it expires, each object
 * checks its own deadline. CLOCK_BOOTTIME continues in suspend and does not follow the wall clock.
 */
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/macro.h"
#include "supervisor/common/supervisor.h"

static uint64_t timers_exec_timeout_at(const struct supervised_exec *x)
{
    return x->timeout ? x->started_mono + x->timeout : DEADLINE_NEVER;
}

static uint64_t timers_exec_idle_at(const struct supervised_exec *x)
{
    return x->idle_timeout ? x->last_output + x->idle_timeout : DEADLINE_NEVER;
}

static uint64_t timers_exec_next(const struct supervised_exec *x)
{
    if (x->state == EXEC_DRAINING)
        return x->drain_by.at;
    if (x->state == EXEC_OVER)
        return x->discard_at;
    if (x->killed || x->awaited)
        return DEADLINE_NEVER;
    return MIN(timers_exec_timeout_at(x), timers_exec_idle_at(x));
}

void timers_arm(struct supervisor *s)
{
    uint64_t at = s->state == SUP_STOPPING && !s->shut ? s->stop_by.at : DEADLINE_NEVER;
    struct itimerspec spec = {0};

    at = MIN(at, s->ops->timer_at(s));
    for (const struct supervised_exec *x = s->execs; x; x = x->next)
        at = MIN(at, timers_exec_next(x));
    if (at == s->timer_at)
        return;
    s->timer_at = at;
    if (at != DEADLINE_NEVER) {
        spec.it_value.tv_sec = (time_t)(at / USEC_PER_SEC);
        spec.it_value.tv_nsec = (long)(at % USEC_PER_SEC * 1000) + 1; /* 0 would disarm it */
    }
    timerfd_settime(s->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void timers_exec_expire(struct supervised_exec *x, uint64_t now)
{
    if (x->state == EXEC_DRAINING) {
        exec_try_finish(x);
        return;
    }
    if (x->state == EXEC_OVER && now >= x->discard_at)
        streams_discard_on(x);
    if (x->state == EXEC_OVER || x->killed || x->awaited)
        return;
    if (now >= timers_exec_timeout_at(x))
        exec_kill(x, END_TIMEOUT);
    else if (now >= timers_exec_idle_at(x))
        exec_kill(x, END_IDLE_TIMEOUT);
}

void timers_on_expiry(struct loop_source *src, uint32_t events _unused_)
{
    struct supervisor *s = container_of(src, struct supervisor, timer);
    uint64_t count, now;

    if (read(src->fd, &count, sizeof(count)) < 0)
        return;
    s->timer_at = 0; /* it has fired and must be set again */
    now = time_mono();
    if (now >= s->ops->timer_at(s))
        s->ops->timer(s, now);
    for (struct supervised_exec *x = s->execs; x; x = x->next)
        timers_exec_expire(x, now);
}
