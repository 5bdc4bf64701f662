/*
 * The system calls that a helper inside a sandbox may still make: it reads hostile archives and
 * trees, and what it needs for that is a short list. No program can be started, no process seen or
 * signalled, no namespace made.
 */
#pragma once

#include "base/err.h"

int confine_job(struct err *err);
