/*
 * `ripcordd`: sets up configuration, store, engines, manager, API and listeners on one loop.
 */
#pragma once

struct engine_ops;

/*
 * Runs the whole program and returns its exit status. `extra` replaces the native engine, for tests
 * that name it with `--engine`; NULL otherwise.
 */
int daemon_main(int argc, char **argv, const struct engine_ops *extra);
