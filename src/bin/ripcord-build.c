/* ripcord-build: one image build of the native engine. See image/build/main.h. */
#include "image/build/main.h"

int main(int argc, char **argv)
{
    return build_main(argc, argv);
}
