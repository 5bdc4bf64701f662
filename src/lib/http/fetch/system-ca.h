/*
 * The certificates of authorities that the machine trusts. Each distribution has its own path, and
 * libcurl knows only that of the machine that built it.
 */
#pragma once

/* The path of the bundle on the machine whose root folder is `root` ("": this machine), without
 * `root`; NULL: it has none. */
const char *system_ca_find(const char *root);
