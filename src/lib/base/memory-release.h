/*
 * Giving memory back while nothing happens. A page of program text that is not looked at is only
 * unmapped from this process: it stays in the page cache, where the next fault finds it.
 */
#pragma once

void memory_release(void);
