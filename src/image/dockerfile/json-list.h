/*
 * The exec form: a JSON array of strings. Whatever is not valid JSON is the shell form, so this is
 * a recognizer first; it keeps the place of every string, which a JSON library would not tell.
 */
#pragma once

#include <stddef.h>

struct json_list_item {
    char *text;        /* owned; NULL when the element is not a string */
    size_t start, end; /* in the text, quotes included */
};

enum json_list_result {
    JSON_LIST_NO,    /* not a JSON array */
    JSON_LIST_MIXED, /* an array with something else than strings in it; items[n - 1] is the first
                      */
    JSON_LIST_YES,
};

/* The text from start to end, blanks around it allowed. *ret is owned by the caller, also when the
 * answer is MIXED. */
enum json_list_result json_list_parse(const char *s, size_t start, size_t end,
                                      struct json_list_item **ret, size_t *ret_n);
void json_list_free(struct json_list_item *items, size_t n);
