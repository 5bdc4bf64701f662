/*
 * What the command line and the daemon agree on about systemd.
 */
#pragma once

#define SERVICE_UNIT "ripcord.service" /* of the system, and of a user */
#define SERVICE_SOCKET "ripcord.sock"  /* in the run folder */
#define SERVICE_STOPPED "stopped"      /* in the run folder: the unit was stopped on purpose */
