/*
 * Heredocs: RUN <<EOF, COPY <<a <<b /dst. Their contents are the lines that follow the instruction.
 * Inside of dockerfile/ only.
 */
#pragma once

#include "image/dockerfile/dockerfile.h"

/* Finds the marks in the instruction's line and reads the contents, as many as there are marks. */
int heredoc_read(struct dockerfile_instruction *in, struct line_reader *r, size_t *ret_at,
                 struct err *err);
/* Whether a word is a heredoc's mark; *ret_name, when it is one and wanted, is owned. */
bool heredoc_is_mark(const char *word, char **ret_name);
