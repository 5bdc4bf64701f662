/* ripcord-build: one image build of the native engine. See build/main.h. */
#include "build/main.h"

int main(int argc, char **argv)
{
    return build_main(argc, argv);
}
