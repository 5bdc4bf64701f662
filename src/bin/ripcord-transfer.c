/* ripcord-transfer: pulls images from registries and pushes them. See proto/transfer.h. */
#include "image/transfer/main.h"

int main(int argc, char **argv)
{
    return transfer_main(argc, argv);
}
