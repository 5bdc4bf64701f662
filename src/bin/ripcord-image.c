/*
 * ripcord-image: imports images into the store of one ripcord root and removes them. See
 * proto/image-program.h.
 */
#include "image/archive/main.h"

int main(int argc, char **argv)
{
    return image_main(argc, argv);
}
