/*
 * The encoding of file names. libarchive follows the locale: in "C" it reads ASCII names only.
 *
 * A locale is a file in a format of libc's own version. Static programs (meson -Dstatic=true) load
 * the folder `locale` beside the program and never a file of the machine.
 */
#pragma once

#include "lib/base/err.h"

/* Call it before the process has a second thread. */
int locale_use_utf8(struct err *err);
