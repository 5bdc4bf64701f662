/*
 * Execs as a table, and what they have used, for people.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* all: ended ones too, with what they used. named: with a column for the sandbox. */
void exec_table(const json_t *list, bool all, bool named);
/* "totals" of an answer, one row for each name. */
void exec_totals(const json_t *totals);
