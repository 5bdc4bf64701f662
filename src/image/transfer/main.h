/* The main of ripcord-transfer (proto/transfer.h). */
#pragma once

int transfer_main(int argc, char **argv);
