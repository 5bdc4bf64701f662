/* ripcord-relay: the supervisor of one running Docker or Podman sandbox. */
#pragma once

int relay_main(int argc, char **argv);
