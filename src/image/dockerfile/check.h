/*
 * What an instruction may hold: the number of its arguments, its flags, and the values that can be
 * judged without knowing any variable. Inside of dockerfile/ only.
 */
#pragma once

#include "image/dockerfile/dockerfile.h"

int check_instruction(struct dockerfile_instruction *in, size_t *ret_at, struct err *err);
