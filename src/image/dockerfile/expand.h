/*
 * Expands words with quotes and variables: $name, ${name}, and ${name} with the operators
 * :- - :+ + :? ? # ## % %% / //. Quotes and the escape character protect text from expansion.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"

enum {
    EXPAND_RESULT_MAX = 1 << 20, /* of one word */
    EXPAND_DEPTH_MAX = 32,       /* of ${a:-${b:-…}} */
};

enum expand_flags {
    EXPAND_RAW_QUOTES = 1 << 0,  /* quotes stay in the result */
    EXPAND_RAW_ESCAPES = 1 << 1, /* escape characters stay in the result */
    EXPAND_SKIP_QUOTES = 1 << 2, /* quotes are ordinary characters */
    EXPAND_SKIP_UNSET = 1 << 3,  /* a variable without a value stays as written */
};

struct expand {
    char escape;
    unsigned flags;
    /* The value of a variable, borrowed; NULL: unset. */
    const char *(*get)(void *userdata, const char *name);
    void *userdata;
};

/* Errors contain no position: the caller knows the position of the word. */
int expand_word(const struct expand *x, const char *word, char **ret, struct err *err);
/* The result as words between unquoted blanks; a new strv, or NULL if there are no words. */
int expand_words(const struct expand *x, const char *text, char ***ret, struct err *err);
