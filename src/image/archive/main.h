/* The main of ripcord-image (proto/image-program.h). */
#pragma once

int image_main(int argc, char **argv);
