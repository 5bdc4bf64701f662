/*
 * The exec form: a JSON array of strings. Text that is not valid JSON is the shell form, so the
 * parser must recognize JSON without an error. It keeps the position of every string, which a JSON
 * library does not.
 */
#pragma once

#include <stddef.h>

struct json_list_item {
    char *text;        /* owned; NULL: not a string */
    size_t start, end; /* in the text, quotes included */
};

enum json_list_result {
    JSON_LIST_NO,    /* not a JSON array */
    JSON_LIST_MIXED, /* an array with a value that is not a string: items[n - 1] */
    JSON_LIST_YES,
};

/* Parses the text from start to end; blanks around it are allowed. *ret is new, also for
 * JSON_LIST_MIXED. */
enum json_list_result json_list_parse(const char *s, size_t start, size_t end,
                                      struct json_list_item **ret, size_t *ret_n);
void json_list_free(struct json_list_item *items, size_t n);
