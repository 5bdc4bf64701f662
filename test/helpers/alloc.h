/* What alloc.c asks the kernel for, so that fault-inject.c knows an allocation when it sees one. */
#pragma once

#define ALLOC_MARK 0x52430000 /* flags of getrandom(2) */
