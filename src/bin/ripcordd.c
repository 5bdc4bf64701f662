/* ripcordd: the daemon. See daemon/main/daemon.h. */
#include <stddef.h>

#include "daemon/main/daemon.h"

int main(int argc, char **argv)
{
    return daemon_main(argc, argv, NULL);
}
