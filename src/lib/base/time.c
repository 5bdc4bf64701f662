#include "lib/base/time.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/macro.h"

#define HTTP_FORMAT "%a, %d %b %Y %H:%M:%S GMT"

static uint64_t time_now(clockid_t clock)
{
    struct timespec ts;

    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * USEC_PER_SEC + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t time_mono(void)
{
    return time_now(CLOCK_BOOTTIME);
}

uint64_t time_wall(void)
{
    return time_now(CLOCK_REALTIME);
}

const char *time_boot_id(char buf[static BOOT_ID_MAX])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, BOOT_ID_MAX - 1);

    if (fd >= 0)
        close(fd);
    buf[MAX(n, 0)] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    if (!*buf)
        memcpy(buf, "-", 2);
    return buf;
}

struct deadline deadline_in(uint64_t usec)
{
    uint64_t at;

    if (__builtin_add_overflow(time_mono(), usec, &at))
        at = DEADLINE_NEVER;
    return (struct deadline){at};
}

bool deadline_passed(const struct deadline *d)
{
    return d->at != DEADLINE_NEVER && time_mono() >= d->at;
}

int deadline_ms(const struct deadline *d)
{
    uint64_t t = time_mono(), ms;

    if (d->at == DEADLINE_NEVER)
        return -1;
    if (t >= d->at)
        return 0;
    ms = (d->at - t + USEC_PER_MSEC - 1) / USEC_PER_MSEC;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

const char *time_format(uint64_t wall_usec, char buf[static TIME_FORMAT_MAX])
{
    time_t secs = (time_t)(wall_usec / USEC_PER_SEC);
    struct tm tm;
    size_t n;

    gmtime_r(&secs, &tm);
    n = strftime(buf, TIME_FORMAT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, TIME_FORMAT_MAX - n, ".%03uZ",
             (unsigned)(wall_usec % USEC_PER_SEC / USEC_PER_MSEC));
    return buf;
}

const char *time_http(uint64_t wall_usec, char buf[static TIME_HTTP_MAX])
{
    time_t secs = (time_t)(wall_usec / USEC_PER_SEC);
    struct tm tm;

    gmtime_r(&secs, &tm);
    strftime(buf, TIME_HTTP_MAX, HTTP_FORMAT, &tm);
    return buf;
}

bool time_http_parse(const char *text, int64_t *ret)
{
    struct tm tm = {0};
    const char *end = strptime(text, HTTP_FORMAT, &tm);

    if (!end || *end)
        return false;
    *ret = timegm(&tm);
    return true;
}
