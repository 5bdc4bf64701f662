/*
 * ripcord-build: one build of the native engine. It has its own process because it reads files
 * that others wrote and clones children.
 *
 *   ripcord-build STORE IDS NAME   the context on descriptor 3
 *
 * IDS: as in proto/image-program.h. NAME: of the build's folder in the store.
 *
 * stdin has JSON lines: first the request, then one answer to each {"run": …}, {"pull": …} and
 * {"fetch": …} that this program writes; an answer has the "id" of its question, and answers come
 * in any order. stdout has JSON lines: events and questions (image/build/daemon-conn.h), {"cancel":
 * true} when the build has failed and only waits until the daemon has stopped its work, and as the
 * last line {"done": …} or {"error": …}.
 */
#pragma once

int build_main(int argc, char **argv);
