/* The main of ripcord-transfer (proto/transfer.h). */
#pragma once

int hub_main(int argc, char **argv);
