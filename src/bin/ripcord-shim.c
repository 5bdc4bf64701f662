/*
 * ripcord-shim: supervisor of one native sandbox. See supervisor/shim/main.h.
 */
#include "supervisor/shim/main.h"

int main(int argc, char **argv)
{
    return shim_main(argc, argv);
}
