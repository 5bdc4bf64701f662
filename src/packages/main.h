/*
 * ripcord-packages: the verified package cache. Started by the daemon; see proto/packages.h.
 */
#pragma once

int packages_main(void);
