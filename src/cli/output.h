/*
 * Output for people and programs: errors, tables, JSON. Text that may come from a sandbox is
 * escaped. Colours are used only on a terminal and without NO_COLOR.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/err.h"
#include "lib/base/macro.h"

void output_hint(bool json, const char *hint); /* "hint: …" on stderr; nothing with json */
/* "ripcord: …" and "hint: …" on stderr; one JSON line with json. */
void output_error(const struct err *err, bool json);
/* "ripcord: …" on stderr; nothing with json. */
void output_note(bool json, const char *fmt, ...) _printf_(2, 3);
/* One line of compact JSON on stdout. */
void output_json(const json_t *doc);
/* Prints the text escaped, on one line. NULL prints "-". */
void output_text(FILE *f, const char *s);

enum output_color { COLOR_NONE, COLOR_BOLD, COLOR_DIM, COLOR_RED, COLOR_GREEN, COLOR_YELLOW };
/* The escape sequence that turns the colour on, or off for COLOR_NONE; "" without colours. */
const char *output_color(FILE *f, enum output_color color);

/* A table: rows of cells (copied and escaped), aligned when printed. */
struct table;
struct table *table_new(const char *const *titles, size_t n); /* titles are borrowed */
void table_free(struct table *t);
void table_add(struct table *t, const char *cell); /* NULL is "-"; rows fill left to right */
void table_color(struct table *t, enum output_color color); /* of the cell added last */
/* On a terminal that is too narrow, this column is cut. Of several such columns the first one named
 * is cut first. Names and ids are never cut: people copy them. */
void table_shorten(struct table *t, size_t column);
void table_print(struct table *t);

/* The age of a time of the API in one unit: "3m", "2h", "5d". NULL gives "-". */
#define AGE_MAX 16
const char *output_age(const char *rfc3339, char buf[static AGE_MAX]);
/* Microseconds since the epoch for "2026-11-16T01:02:03[.456]Z", or 0 when it is not valid. */
uint64_t output_parse_time(const char *rfc3339);

/* The text or number of a member of a JSON object; NULL or 0 when it is absent. */
const char *json_text_of(const json_t *obj, const char *key);
uint64_t json_number_of(const json_t *obj, const char *key);
