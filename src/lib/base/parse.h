/*
 * Strict parsing of text that people type. The whole string must match; the parser never guesses.
 * Failure is -ERR_INVALID, *ret stays untouched, and the error quotes the value and says what is
 * allowed. Callers put the name in front with err_wrap():
 *
 *     --pids: 'x' is not a whole number
 *     port: '0' is out of range (must be between 1 and 65535)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* Decimal digits only: no sign, blank, hex or leading '+'. */
int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *err);
int parse_u32(const char *s, uint32_t min, uint32_t max, uint32_t *ret, struct err *err);

/* "512M", "1.5G", "4GiB", "1024": binary multiples K M G T, in bytes. */
int parse_size(const char *s, uint64_t *ret, struct err *err);

/* "30s", "5m", "1h30m", "250ms", "2d", "1.5s"; a bare number is seconds. In microseconds. */
int parse_duration(const char *s, uint64_t *ret_usec, struct err *err);

/* "2", "0.5": CPUs. Both bounds and the result are in thousandths. */
int parse_cpus(const char *s, uint32_t min_milli, uint32_t max_milli, uint32_t *ret_milli,
               struct err *err);

/* Fails unless min <= v <= max: "--memory must be between 6 MiB and 1 PiB". `name` is the option or
 * field as its user knows it; `unit` is what v counts and decides how the bounds are printed. */
enum parse_unit { PARSE_COUNT, PARSE_BYTES, PARSE_MSEC };
int parse_check_range(const char *name, uint64_t v, uint64_t min, uint64_t max,
                      enum parse_unit unit, struct err *err);

/* yes/no, true/false, on/off, 1/0. */
int parse_bool(const char *s, bool *ret, struct err *err);

/* "TERM", "SIGTERM", "15". */
int parse_signal(const char *s, int *ret, struct err *err);
const char *signal_name(int sig); /* "TERM"; NULL when unknown */

/* A sandbox name: [a-z0-9]([a-z0-9-]{0,61}[a-z0-9])? */
bool name_is_valid(const char *s);
int parse_name(const char *what, const char *s, struct err *err);

/* "UID", "UID:GID", or a name [a-z_][a-z0-9_-]{0,31}; numbers are at most 65535. Whether the name
 * exists is decided later, by the passwd file of the sandbox. */
int parse_user(const char *s, struct err *err);

/* The permission bits of a file in octal, without set-id and sticky bits: "644", "0755". */
int parse_mode(const char *s, uint64_t *ret, struct err *err);

/* KEY=VALUE with KEY [A-Za-z_][A-Za-z0-9_]*. */
int parse_env(const char *s, struct err *err);

/* The name of a secret, which is also the name of its file: [A-Za-z0-9_][A-Za-z0-9_.-]{0,63}. */
int parse_secret_name(const char *s, struct err *err);

/* Text for people: "1.5 GiB", "250ms", "2h30m". Both return buf. */
#define FORMAT_MAX 32
const char *format_size(uint64_t bytes, char buf[static FORMAT_MAX]);
const char *format_duration(uint64_t usec, char buf[static FORMAT_MAX]);
