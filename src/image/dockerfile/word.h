/*
 * Blanks and words, as BuildKit splits them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Length of the white-space character at s, or 0. Includes the blanks of Unicode. */
size_t word_space(const char *s, size_t len);
/* White space of BuildKit's regular expressions: without the newline. */
bool word_blank(char c);
/* Removes the white space on both sides of [*start, *end). */
void word_trim(const char *s, size_t *start, size_t *end);

struct word_span {
    size_t start, end;
};

/* Spans of the words between blanks; *n is their number. New. */
struct word_span *word_split(const char *s, size_t start, size_t end, size_t *n);
/* The same, but blanks in quotes or after the escape character do not split. Quotes and escape
 * characters stay in the words. */
struct word_span *word_split_quoted(const char *s, size_t start, size_t end, char escape,
                                    size_t *n);
