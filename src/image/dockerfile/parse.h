/*
 * Parses one instruction from its joined line. Only for dockerfile/.
 */
#pragma once

#include "image/dockerfile/dockerfile.h"

/* Fills *in from in->line, without heredocs. On failure *ret_at is the offset in the source. The
 * caller releases *in with instruction_done(), also after a failure. */
int parse_instruction(struct dockerfile_instruction *in, char escape, size_t *ret_at,
                      struct err *err);
void instruction_done(struct dockerfile_instruction *in);
