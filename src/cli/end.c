#include "cli/end.h"

#include <string.h>

#include "cli/cli.h"
#include "cli/output.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

static const char *cli_end_ms(uint64_t v, char buf[static FORMAT_MAX])
{
    return format_duration(v * USEC_PER_MSEC, buf);
}

/* The command exited by itself. The counters may show failures of its processes. */
static char *cli_end_exit_words(const json_t *end)
{
    char limit[FORMAT_MAX];
    unsigned long long kills = json_number_of(end, "oom_kills");
    unsigned long long denied = json_number_of(end, "pids_denied");
    const char *message = json_text_of(end, "message");

    if (message)
        return xstrdup(message);
    if (kills)
        return xasprintf("out of memory: %llu process%s of the command killed (limit %s)", kills,
                         kills == 1 ? "" : "es",
                         format_size(json_number_of(end, "memory_limit"), limit));
    if (denied)
        return xasprintf("process limit reached: %llu fork%s refused", denied,
                         denied == 1 ? "" : "s");
    return NULL;
}

char *end_words(const json_t *end, uint64_t timeout_ms, uint64_t idle_timeout_ms)
{
    const char *cause = json_text_of(end, "cause"), *message = json_text_of(end, "message");
    char buf[FORMAT_MAX];

    if (!cause)
        return xstrdup("the end record has no cause");
    if (STREQ(cause, "exited"))
        return cli_end_exit_words(end);
    if (STREQ(cause, "timeout") && timeout_ms)
        return xasprintf("timeout: the command was killed after %s", cli_end_ms(timeout_ms, buf));
    if (STREQ(cause, "idle_timeout") && idle_timeout_ms)
        return xasprintf("idle timeout: the command was killed after %s without output",
                         cli_end_ms(idle_timeout_ms, buf));
    return message ? xstrdup(message) : xasprintf("the command ended: %s", cause);
}

char *end_stats(const json_t *end)
{
    char wall[FORMAT_MAX], cpu[FORMAT_MAX], peak[FORMAT_MAX], in[FORMAT_MAX], out[FORMAT_MAX];

    return xasprintf("wall %s, cpu %s, peak memory %s, read %s, written %s, output %llu+%llu bytes",
                     cli_end_ms(json_number_of(end, "wall_ms"), wall),
                     cli_end_ms(json_number_of(end, "cpu_ms"), cpu),
                     format_size(json_number_of(end, "memory_peak"), peak),
                     format_size(json_number_of(end, "io_read"), in),
                     format_size(json_number_of(end, "io_write"), out),
                     (unsigned long long)json_number_of(end, "stdout_bytes"),
                     (unsigned long long)json_number_of(end, "stderr_bytes"));
}

static uint64_t cli_end_sum_of(const json_t *packages, const char *key)
{
    uint64_t sum = 0;
    const char *name;
    json_t *v;

    json_object_foreach ((json_t *)packages, name, v)
        sum += json_number_of(v, key);
    return sum;
}

char *end_packages(const json_t *end)
{
    const json_t *p = json_object_get(end, "packages");
    unsigned long long hits = cli_end_sum_of(p, "hits"), misses = cli_end_sum_of(p, "misses");
    char store[FORMAT_MAX], upstream[FORMAT_MAX];

    if (!cli_end_sum_of(p, "requests"))
        return NULL;
    return xasprintf("packages: %llu hit%s, %llu miss%s, %s from the cache, %s downloaded", hits,
                     hits == 1 ? "" : "s", misses, misses == 1 ? "" : "es",
                     format_size(cli_end_sum_of(p, "bytes_store"), store),
                     format_size(cli_end_sum_of(p, "bytes_upstream"), upstream));
}

int end_status(const json_t *end)
{
    const json_t *status = json_object_get(end, "status");

    /* A missing status is our failure, not a success of the command. */
    return json_is_integer(status) ? (int)(json_integer_value(status) & 0xff) : CLI_EXIT_OURS;
}
