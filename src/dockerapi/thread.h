/* Threads of the Engine API client. */
#pragma once

/* Starts a detached thread that blocks all signals. Returns 0 or an errno. */
int docker_thread(void *(*fn)(void *), void *arg);
