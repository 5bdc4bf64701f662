#include "cli/term.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static bool is_raw;

void term_restore(void)
{
    if (is_raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
    is_raw = false;
}

bool term_raw(void)
{
    static bool registered;
    struct termios raw;

    if (is_raw)
        return true;
    if (tcgetattr(STDIN_FILENO, &saved) < 0)
        return false;
    raw = saved;
    cfmakeraw(&raw);
    if (!registered)
        registered = atexit(term_restore) == 0;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
        return false;
    is_raw = true;
    return true;
}

bool term_size(unsigned *rows, unsigned *cols)
{
    struct winsize ws;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (ioctl(fd, TIOCGWINSZ, &ws) < 0 || !ws.ws_row || !ws.ws_col)
            continue;
        *rows = ws.ws_row;
        *cols = ws.ws_col;
        return true;
    }
    return false;
}
