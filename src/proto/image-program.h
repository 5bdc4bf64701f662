/*
 * ripcord-image: what changes the image store or packs its layers, in a process of its own, as it
 * clones children and the daemon has threads.
 *
 *   ripcord-image STORE IDS import [NAME [PLATFORM]]   an archive on stdin
 *   ripcord-image STORE IDS export NAME FORM   an archive on IMAGE_FD_OUT (image/archive/export.h)
 *   ripcord-image STORE IDS rm NAME         in use: ids of images on stdin, one on a line
 *   ripcord-image STORE IDS prune           likewise
 *
 * IDS is "own", "range" or "sub:UID:GID" (image/archive/confined.h). One line of JSON on stdout:
 * the result, or {"error": …} and exit status 1.
 */
#pragma once

enum { IMAGE_FD_OUT = 3 };
