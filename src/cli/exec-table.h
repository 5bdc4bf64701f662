/*
 * Tables of execs and of their resource usage.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* all: include ended execs and the usage. named: add a column for the sandbox. */
void exec_table(const json_t *list, bool all, bool named);
/* totals: the "totals" of a response; one row for each name. */
void exec_totals(const json_t *totals);
