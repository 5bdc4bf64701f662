/*
 * ripcord-guest: our program inside a container. See proto/guest.h.
 */
#include "guest/modes.h"

int main(int argc, char **argv)
{
    (void)argc;
    guest_main(argv);
}
