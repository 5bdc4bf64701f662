/*
 * Logging to stderr. Library folders log at debug level only; the programs decide what they report,
 * so one failure is one line. Text: "2026-… warn  message"; JSON with log_set_json(). Control
 * bytes in messages are escaped: they may come from a sandbox. Never log environment values, tokens
 * or request bodies.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/macro.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
int log_parse_level(const char *name, enum log_level *ret, struct err *err);
void log_set_json(bool on);
void log_at(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
