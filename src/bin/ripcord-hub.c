/* ripcord-hub: fetches images from registries and sends them there. See hub/main.h. */
#include "hub/main.h"

int main(int argc, char **argv)
{
    return hub_main(argc, argv);
}
