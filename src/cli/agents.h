/*
 * Option --ssh of `image build`: the ssh agents of the user, named by their sockets.
 */
#pragma once

#include "cli/options.h"
#include "lib/base/err.h"

/* Turns each "ID[=SOCKET]" into "ID=/PATH" in *ret, a strv that the caller frees. The default
 * socket is SSH_AUTH_SOCK. Fails when no agent listens on a socket. */
int agents_from_args(const struct cli_args *a, char ***ret, struct err *err);
