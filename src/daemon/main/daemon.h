/*
 * Wiring: configuration, store, engines, manager, API and listener on one loop.
 */
#pragma once

struct engine_ops;

/* The whole program; the exit status. `extra`: a further engine that `--engine` may name (tests),
 * or NULL. */
int daemon_main(int argc, char **argv, const struct engine_ops *extra);
