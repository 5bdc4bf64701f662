/*
 * Strict parsing of what people type: the whole string must match, nothing is guessed, and the
 * error names the value and what would be right. Failure is -ERR_INVALID.
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

/* "2", "0.5": CPUs in thousandths; 1 (0.001) to 1,024,000. */
int parse_cpus(const char *s, uint32_t *ret_milli, struct err *err);

/* yes/no, true/false, on/off, 1/0. */
int parse_bool(const char *s, bool *ret, struct err *err);

/* "TERM", "SIGTERM", "15". */
int parse_signal(const char *s, int *ret, struct err *err);
const char *signal_name(int sig); /* "TERM"; NULL when unknown */

/* A sandbox name: [a-z0-9]([a-z0-9-]{0,61}[a-z0-9])? */
bool name_is_valid(const char *s);
int parse_name(const char *what, const char *s, struct err *err);

/* "UID", "UID:GID", or a name [a-z_][a-z0-9_-]{0,31}; numbers are at most 65535. The name is left
 * to the sandbox's passwd. */
int parse_user(const char *s, struct err *err);

/* KEY=VALUE with KEY [A-Za-z_][A-Za-z0-9_]*. */
int parse_env(const char *s, struct err *err);

/* The name of a secret, which becomes that of a file: [A-Za-z0-9_][A-Za-z0-9_.-]{0,63}. */
int parse_secret_name(const char *s, struct err *err);

/* For people: "1.5 GiB", "250ms", "2h30m". */
#define FORMAT_MAX 32
const char *format_size(uint64_t bytes, char buf[static FORMAT_MAX]);
const char *format_duration(uint64_t usec, char buf[static FORMAT_MAX]);
