/*
 * ripcord-relay: supervisor of one Docker or Podman sandbox. See supervisor/relay/main.h.
 */
#include "supervisor/relay/main.h"

int main(int argc, char **argv)
{
    return relay_main(argc, argv);
}
