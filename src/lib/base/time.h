/*
 * Clocks and deadlines. Durations are microseconds in uint64_t. Deadlines count on CLOCK_BOOTTIME,
 * which goes on in suspend and does not follow wall-clock jumps.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define USEC_PER_MSEC UINT64_C(1000)
#define USEC_PER_SEC UINT64_C(1000000)
#define DEADLINE_NEVER UINT64_MAX

struct deadline {
    uint64_t at; /* boottime microseconds, or DEADLINE_NEVER */
};

uint64_t time_mono(void); /* CLOCK_BOOTTIME in microseconds */
uint64_t time_wall(void); /* CLOCK_REALTIME in microseconds since the epoch */

struct deadline deadline_in(uint64_t usec);
bool deadline_passed(const struct deadline *d);
int deadline_ms(const struct deadline *d); /* for poll(2): rounded up, -1 for never */

/* The id of this boot of the machine; "-" when it cannot be read. */
enum { BOOT_ID_MAX = 40 };
const char *time_boot_id(char buf[static BOOT_ID_MAX]);

/* "2026-11-16T01:02:03.456Z" */
#define TIME_FORMAT_MAX 32
const char *time_format(uint64_t wall_usec, char buf[static TIME_FORMAT_MAX]);
/* "Mon, 16 Nov 2026 01:02:03 GMT", as in a Date field */
#define TIME_HTTP_MAX 32
const char *time_http(uint64_t wall_usec, char buf[static TIME_HTTP_MAX]);
/* Parses that form to seconds since the epoch; false: malformed. Works in the C locale only. */
bool time_http_parse(const char *text, int64_t *ret);
