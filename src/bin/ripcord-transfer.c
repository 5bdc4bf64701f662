/* ripcord-transfer: fetches images from registries and sends them there. See proto/transfer.h.
 */
#include "image/transfer/main.h"

int main(int argc, char **argv)
{
    return transfer_main(argc, argv);
}
