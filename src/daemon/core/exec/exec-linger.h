/*
 * The sandbox of a `run` is removed when its command ends. A client that asked for an answer before
 * the end would then find nothing, so such a sandbox stays for a minute after the end. All on the
 * loop.
 */
#pragma once

struct exec;
struct manager;

/* The exec's sandbox is ephemeral, and its end can be fetched for a minute. */
void exec_linger(struct exec *x);

/* Called by manager_tick(). */
void exec_linger_tick(struct manager *m);
void exec_linger_close(struct manager *m);
