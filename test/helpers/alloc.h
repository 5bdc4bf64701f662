/* The flags by which fault-inject.c recognizes an allocation of alloc.c. */
#pragma once

#define ALLOC_MARK 0x52430000 /* flags of getrandom(2) */
