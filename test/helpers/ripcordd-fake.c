/* ripcordd with the fake engine beside the native one: `--engine fake`. For tests of the API. */
#include "daemon/engine/engine-ops.h"
#include "daemon/main/daemon.h"

int main(int argc, char **argv)
{
    return daemon_main(argc, argv, &engine_fake_ops);
}
