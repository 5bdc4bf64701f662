/* ripcordd with the fake engine beside the native one: `--engine fake`. For tests of the API. */
#include "daemon/daemon.h"
#include "engine/engine.h"

int main(int argc, char **argv)
{
    return daemon_main(argc, argv, &engine_fake_ops);
}
