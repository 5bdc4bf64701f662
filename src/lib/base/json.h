/*
 * JSON on jansson with our rules: duplicate keys, NUL in strings and depth over 32 are refused;
 * objects are read through a table of fields, so that unknown fields are refused with the nearest
 * match and every error names the field. Only folders that link jansson may include this header.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

#define _cleanup_json_ __attribute__((cleanup(json_decrefp)))

enum { JSON_DEPTH_LIMIT = 32 };

/* The text must be exactly one value. `what` names the source in errors ("request body"). */
int json_parse(const char *what, const char *text, size_t len, json_t **ret, struct err *err);

/* The same for a document with the output of a command, which may contain NUL. Read such a string
 * with json_string_length(). */
int json_parse_output(const char *what, const char *text, size_t len, json_t **ret,
                      struct err *err);

/* Before json_parse() of a large text: -ERR_LIMIT if it has more names and values than that. Each
 * can take a hundred times the memory of its text. */
int json_check_values(const char *what, const char *text, size_t len, size_t max, struct err *err);

/*
 * Each program calls one of these before its first document; they hold for the whole process. With
 * both, out of memory ends the process: otherwise a field could be missing silently. The second
 * also overwrites freed documents, because requests carry credentials.
 */
void json_need_memory(void);
void json_wipe_freed(void);

/* Compact text, malloc'd, never NULL; keys sorted when `canonical`. */
char *json_to_text(const json_t *j, bool canonical);

enum json_field_type {
    JSON_FIELD_STRING, /* const char *, borrowed from the document */
    JSON_FIELD_BOOL,   /* bool */
    JSON_FIELD_U64,    /* uint64_t, 0 to 2^63-1 */
    JSON_FIELD_ARRAY,  /* json_t *, borrowed */
    JSON_FIELD_OBJECT, /* json_t *, borrowed */
    JSON_FIELD_ANY,    /* json_t *, borrowed */
};

struct json_field {
    const char *name;
    enum json_field_type type;
    void *ret; /* untouched when the field is absent or null */
};

/* `where` prefixes the field in errors: "limits" gives "limits.memory". NULL at the top. */
int json_read(const json_t *obj, const char *where, const struct json_field *fields, size_t n,
              struct err *err);

/* An array of strings; *ret is a new strv. */
int json_read_strv(const json_t *array, const char *where, char ***ret, struct err *err);
json_t *json_from_strv(char *const *v); /* leaves out strings that are not valid UTF-8 */

json_t *json_from_text(const char *s); /* null for NULL and for text that is not valid UTF-8 */
json_t *json_from_time(uint64_t wall); /* as text; null for 0 */

/* Converts between an err and {"error":{"code","message","hint"}}. */
json_t *json_from_err(const struct err *err);
int json_to_err(const json_t *doc, struct err *err);
