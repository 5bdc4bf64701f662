/* A thread of the client's own. */
#pragma once

/* Detached, and no signal of the process is for it. 0 or an errno. */
int docker_thread(void *(*fn)(void *), void *arg);
