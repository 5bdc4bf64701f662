/*
 * ripcord-image: changes the image store and packs its layers. It is a process of its own, because
 * it clones children and the daemon has threads.
 *
 *   ripcord-image STORE IDS MAX import [NAME [PLATFORM]]  reads an archive from stdin
 *   ripcord-image STORE IDS MAX export NAME FORM       writes an archive to IMAGE_FD_OUT
 *                                                      (image/archive/export.h)
 *   ripcord-image STORE IDS MAX rm NAME                stdin: ids of images in use, one per line
 *   ripcord-image STORE IDS MAX prune                  the same on stdin
 *
 * IDS is "own", "range" or "sub:UID:GID" (image/archive/confined.h). MAX limits the bytes of an
 * image (image/archive/import.h). One line of JSON on stdout: the result, or {"error": …} and exit
 * status 1.
 */
#pragma once

enum { IMAGE_FD_OUT = 3 };
