/*
 * Blanks and words, as the language splits them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the white-space character at s, or 0; Unicode's blanks count. */
size_t word_space(const char *s, size_t len);
/* What regular expressions of the language call white space: no newline. */
bool word_blank(char c);
/* Narrows [*start, *end) of s by the white space on both sides. */
void word_trim(const char *s, size_t *start, size_t *end);

struct word_span {
    size_t start, end;
};

/* Spans of the words between blanks. *n is their number; the array is owned by the caller. */
struct word_span *word_split(const char *s, size_t start, size_t end, size_t *n);
/* The same where quotes and the escape character keep blanks together; they stay in the words. */
struct word_span *word_split_quoted(const char *s, size_t start, size_t end, char escape,
                                    size_t *n);
