/*
 * Keeps a static program (meson -Dstatic=true) from loading parts of the machine's libraries. They
 * belong to another version of libc, so that loading them fails or crashes. For other programs
 * this does nothing.
 */
#pragma once

/* Call it before the process has a second thread and before it uses OpenSSL. It sets a variable of
 * the environment. */
void static_program_init(void);
