/* What is left to ripcord-hub: it reads what hostile registries send. */
#pragma once

#include "base/err.h"
#include "hub/settings.h"

/* Another user, when told so; `folder` becomes that one's. */
int hub_become(const struct settings *s, int folder, struct err *err);
int hub_confine(struct err *err); /* last, before the first thread */
