/*
 * One instruction of a joined line: the table of instructions, and the forms of their arguments.
 * Inside of dockerfile/ only.
 */
#pragma once

#include "image/dockerfile/dockerfile.h"

/* in->line is filled, and the rest is filled here, but for heredocs. On failure *ret_at is the
 * place in the source, and *in must still be released with instruction_done(). */
int parse_instruction(struct dockerfile_instruction *in, char escape, size_t *ret_at,
                      struct err *err);
void instruction_done(struct dockerfile_instruction *in);
