#include "daemon/core/sandbox/uptime.h"

#include <stdio.h>

#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/time.h"
#include "lib/store/store.h"

#define KEY "uptime"
#define SAVE_EVERY (60 * USEC_PER_SEC)

/* "<boot id> <base> <last reading>" */
static int uptime_save(struct uptime *u, struct err *err)
{
    char text[BOOT_ID_MAX + 48], boot[BOOT_ID_MAX];
    uint64_t now = uptime_now(u);
    int r;

    snprintf(text, sizeof(text), "%s %llu %llu", time_boot_id(boot), (unsigned long long)u->base,
             (unsigned long long)now);
    r = store_meta_set(u->store, KEY, text, false, err);
    if (r < 0)
        return r;
    u->saved = now;
    return 0;
}

int uptime_open(struct store *store, struct uptime *ret, struct err *err)
{
    char text[BOOT_ID_MAX + 48], boot[BOOT_ID_MAX], then[BOOT_ID_MAX] = "";
    unsigned long long base = 1, last = 1; /* 1: a reading is never 0 */
    int r;

    *ret = (struct uptime){.store = store};
    r = store_meta_get(store, KEY, text, sizeof(text), err);
    if (r < 0)
        return r;
    if (r > 0 && sscanf(text, "%39s %llu %llu", then, &base, &last) != 3)
        return err_set(err, ERR_SYSTEM, "the lease clock in the store is damaged: '%s'", text);
    /* Another boot goes on where the last reading was; what this one has counted already counts. */
    ret->base = STREQ(then, time_boot_id(boot)) ? base : last;
    return uptime_save(ret, err);
}

uint64_t uptime_now(const struct uptime *u)
{
    return u->base + time_mono();
}

uint64_t uptime_since(const struct uptime *u, uint64_t reading)
{
    uint64_t now = uptime_now(u);

    return now - MIN(now, reading);
}

void uptime_tick(struct uptime *u)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (uptime_since(u, u->saved) >= SAVE_EVERY && uptime_save(u, &err) < 0)
        log_debug("cannot save the lease clock, trying again: %s", err.msg);
}
