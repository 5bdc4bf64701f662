#include "daemon/core/sandbox/lease-clock.h"

#include <stdio.h>

#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/time.h"
#include "lib/store/store.h"

#define KEY "uptime"
#define SAVE_EVERY (60 * USEC_PER_SEC)

/* "<boot id> <base> <last reading>" */
static int lease_clock_save(struct lease_clock *u, struct err *err)
{
    char text[BOOT_ID_MAX + 48], boot[BOOT_ID_MAX];
    uint64_t now = lease_clock_now(u);
    int r;

    snprintf(text, sizeof(text), "%s %llu %llu", time_boot_id(boot), (unsigned long long)u->base,
             (unsigned long long)now);
    r = store_meta_set(u->store, KEY, text, false, err);
    if (r < 0)
        return r;
    u->saved = now;
    return 0;
}

int lease_clock_open(struct store *store, struct lease_clock *ret, struct err *err)
{
    char text[BOOT_ID_MAX + 48], boot[BOOT_ID_MAX], then[BOOT_ID_MAX] = "";
    unsigned long long base = 1, last = 1; /* 1: a reading is never 0 */
    int r;

    *ret = (struct lease_clock){.store = store};
    r = store_meta_get(store, KEY, text, sizeof(text), err);
    if (r < 0)
        return r;
    if (r > 0 && sscanf(text, "%39s %llu %llu", then, &base, &last) != 3)
        return err_set(err, ERR_SYSTEM, "the lease clock in the store is damaged: '%s'", text);
    /* After a reboot the clock continues from the last reading. The time of this boot before the
     * daemon's start counts. */
    ret->base = STREQ(then, time_boot_id(boot)) ? base : last;
    return lease_clock_save(ret, err);
}

uint64_t lease_clock_now(const struct lease_clock *u)
{
    return u->base + time_mono();
}

uint64_t lease_clock_since(const struct lease_clock *u, uint64_t reading)
{
    uint64_t now = lease_clock_now(u);

    return now - MIN(now, reading);
}

void lease_clock_tick(struct lease_clock *u)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (lease_clock_since(u, u->saved) >= SAVE_EVERY && lease_clock_save(u, &err) < 0)
        log_debug("cannot save the lease clock, trying again: %s", err.msg);
}
