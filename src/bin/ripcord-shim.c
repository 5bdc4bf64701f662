/*
 * ripcord-shim: supervisor of one native sandbox. See shim/main.h.
 */
#include "shim/main.h"

int main(void)
{
    return shim_main();
}
