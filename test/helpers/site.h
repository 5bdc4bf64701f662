/*
 * The site of a system call in a stopped process: a number that identifies the call and its nearest
 * callers, independent of load addresses. Every word on the stack that looks like a return address
 * counts as a caller. Old words on the stack can give one site two numbers; that costs a test run
 * some time, but hides no site.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

uint64_t site_of(pid_t pid, uint64_t nr, uint64_t ip, uint64_t sp);

/* Drops the remembered memory maps of all tasks. Call it when the maps of a task change. */
void site_forget(void);
