/*
 * ripcord-relay: supervisor of one Docker or Podman sandbox. See relay/main.h.
 */
#include "relay/main.h"

int main(int argc, char **argv)
{
    return relay_main(argc, argv);
}
