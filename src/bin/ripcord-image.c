/*
 * ripcord-image: brings images into the store of one ripcord root and removes them. See
 * image/main.h.
 */
#include "image/main.h"

int main(int argc, char **argv)
{
    return image_main(argc, argv);
}
