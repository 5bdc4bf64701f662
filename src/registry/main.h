/*
 * ripcord-registry: the verified package cache. Started by the daemon; see registry/proto.h.
 */
#pragma once

int registry_main(void);
