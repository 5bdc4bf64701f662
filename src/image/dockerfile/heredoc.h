/*
 * Heredocs: RUN <<EOF, COPY <<a <<b /dst. Their contents are the lines after the instruction. Only for
 * dockerfile/.
 */
#pragma once

#include "image/dockerfile/dockerfile.h"

/* Finds the marks in the instruction's line, and reads the content of each. */
int heredoc_read(struct dockerfile_instruction *in, struct line_reader *r, size_t *ret_at,
                 struct err *err);
/* Whether a word is the mark of a heredoc. *ret_name is new; ret_name can be NULL. */
bool heredoc_is_mark(const char *word, char **ret_name);
