/*
 * Gives memory back while a process waits. It unmaps the pages of the program's own text and
 * constants from this process. They stay in the page cache, so the next access maps them again
 * cheaply.
 */
#pragma once

void memory_release(void);
