/*
 * Which of two objects of an engine is older. Its times are RFC 3339 with as many digits of the
 * second as it needs ("…:19.12Z" is later than "…:19.1Z" and before "…:19.123Z"), so they compare
 * neither as text nor by the second.
 */
#pragma once

#include <stdbool.h>

/* Equal times: the smaller id is the older one, so that everybody chooses the same. */
bool created_before(const char *time_a, const char *id_a, const char *time_b, const char *id_b);
