/*
 * ripcord daemon status, stop and restart.
 */
#pragma once

#include "cli/options.h"

/* Whether `word` is such an action. */
bool daemon_is_action(const char *word);
/* words: the action, and the options after it. Returns the exit status. */
int daemon_action(struct cli *cli, int n_words, char **words, struct err *err);
