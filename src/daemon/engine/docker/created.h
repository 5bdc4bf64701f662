/*
 * Compares the ages of two objects of an engine. The times are RFC 3339 with a varying number of
 * digits in the fraction: "…:19.1Z" is before "…:19.12Z", which is before "…:19.123Z". A comparison
 * as text would be wrong, and whole seconds are not enough.
 */
#pragma once

#include <stdbool.h>

/* With equal times the smaller id counts as older, so that all processes choose the same object. */
bool created_before(const char *time_a, const char *id_a, const char *time_b, const char *id_b);
