/*
 * ripcord-registry: verified package cache of one ripcord root. See registry/main.h.
 */
#include "registry/main.h"

int main(void)
{
    return registry_main();
}
