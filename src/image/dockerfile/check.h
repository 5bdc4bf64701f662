/*
 * Checks an instruction: the number of its arguments, its flags, and the values that can be checked
 * without the values of variables. Only for dockerfile/.
 */
#pragma once

#include "image/dockerfile/dockerfile.h"

int check_instruction(struct dockerfile_instruction *in, size_t *ret_at, struct err *err);
