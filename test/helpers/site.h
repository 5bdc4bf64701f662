/*
 * Where a stopped process makes a call: a number that is the same for the same call by the same
 * nearest callers, whatever the addresses that program and libraries were loaded at. What looks
 * like a return address on the stack counts as a caller, so that what an earlier call has left
 * there can give one place two numbers, which costs a sweep time and hides nothing.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

uint64_t site_of(pid_t pid, uint64_t nr, uint64_t ip, uint64_t sp);

/* What is mapped where is remembered for each task: to be called when that changes for one. */
void site_forget(void);
