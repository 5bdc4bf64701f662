/*
 * ripcord-shim: supervisor of one native sandbox. See shim/main.h.
 */
#include "shim/main.h"

int main(int argc, char **argv)
{
    return shim_main(argc, argv);
}
