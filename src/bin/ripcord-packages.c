/*
 * ripcord-packages: verified package cache of one ripcord root. See packages/main.h.
 */
#include "packages/main.h"

int main(void)
{
    return packages_main();
}
