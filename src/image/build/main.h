/*
 * ripcord-build: one build of the native engine. It has its own process because it reads files
 * that others wrote and clones children.
 *
 *   ripcord-build STORE IDS NAME
 *
 * IDS: as in proto/image-program.h. NAME: of the build's folder in the store.
 *
 *   stdin    the request: one line of JSON
 *   stdout   one line of JSON: the result {"id", "names", "layers"}, or {"error": …}
 *   3        the context: a file
 *   4        a unix socket: the daemon answers each byte with a connection, one for each process
 *            that builds (image/build/daemon-conn.h)
 */
#pragma once

int build_main(int argc, char **argv);
