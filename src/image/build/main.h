/*
 * ripcord-build: one build of the native engine, in a process of its own, as it reads what others
 * have written and clones children.
 *
 *   ripcord-build STORE IDS NAME build   the context on descriptor 3
 *   ripcord-build STORE IDS NAME clean   removes what a build of that name has left
 *
 * IDS as of proto/image-program.h; NAME is that of its folder in the store. `build` reads its
 * request as one line of JSON on stdin and then an answer to each {"run": …} and {"pull": …} that
 * it writes, with the same "id" and in any order. What it writes to stdout is one line of JSON
 * each: events and questions (image/build/daemon-conn.h), {"cancel": true} when it waits for its
 * answers only to be sure that nobody is at work, and at last {"done": …} or {"error": …}.
 */
#pragma once

int build_main(int argc, char **argv);
