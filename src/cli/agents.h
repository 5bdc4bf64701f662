/*
 * --ssh of `image build`: ssh agents of whoever asks, by their sockets.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/err.h"

/* "ID[=SOCKET]" of each becomes "ID=/PATH" in *ret, a strv; without a socket it is that of
 * SSH_AUTH_SOCK. Somebody has to listen there. */
int agents_from_args(const struct cli_args *a, char ***ret, struct err *err);
