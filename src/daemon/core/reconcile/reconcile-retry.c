/*
 * Remembers what failed or was busy, with the time of its next try. Until then background runs skip
 * the object and repeat the last result; a command tries at once.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "daemon/core/reconcile/reconcile-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

#define RETRY_FIRST (2 * USEC_PER_SEC)
#define RETRY_MAX (600 * USEC_PER_SEC)
enum { RETRY_DOUBLINGS = 9 };

/* An object whose action failed or was deferred. */
struct reconcile_retry {
    unsigned tries;
    uint64_t at; /* time_mono() of the next try */
    enum recon_result result;
    char *reason, *hint;
};

static void reconcile_retry_free(struct reconcile_retry *retry)
{
    if (!retry)
        return;
    free(retry->reason);
    free(retry->hint);
    free(retry);
}

static char *reconcile_retry_key_of(const struct recon_item *item)
{
    return xasprintf("%s %d %s", item->engine->ops->name, (int)item->kind,
                     item->ref ? item->ref : item->id);
}

/* Varies by a quarter: many that failed together must not be tried again together. */
static uint64_t reconcile_retry_pause_after(unsigned tries)
{
    uint64_t pause = RETRY_FIRST << MIN(tries - 1, (unsigned)RETRY_DOUBLINGS), dice = 0;

    if (getrandom(&dice, sizeof(dice), 0) != (ssize_t)sizeof(dice))
        dice = 0;
    pause = MIN(pause, RETRY_MAX);
    return pause - pause / 4 + dice % (pause / 2);
}

void reconcile_retry_later(struct reconcile *rc, struct recon_item *item)
{
    _cleanup_free_ char *key = reconcile_retry_key_of(item);
    struct reconcile_retry *retry = map_get(&rc->retries, key);

    if (!retry) {
        retry = xnew0(struct reconcile_retry);
        map_add(&rc->retries, key, retry);
    }
    retry->tries++;
    retry->at = time_mono() + reconcile_retry_pause_after(retry->tries);
    retry->result = item->result;
    free(retry->reason);
    retry->reason = item->reason ? xstrdup(item->reason) : NULL;
    free(retry->hint);
    retry->hint = item->hint ? xstrdup(item->hint) : NULL;
    item->retry_at = retry->at;
}

void reconcile_retry_forget(struct reconcile *rc, const struct recon_item *item)
{
    _cleanup_free_ char *key = reconcile_retry_key_of(item);

    reconcile_retry_free(map_remove(&rc->retries, key));
}

/* Entries that no run has tried for long belong to objects that somebody else removed. */
void reconcile_retry_trim(struct reconcile *rc)
{
    void *value;
    const char *key;

    for (size_t i = 0; map_next(&rc->retries, &i, &key, &value);) {
        struct reconcile_retry *retry = value;

        if (retry->at + 2 * RETRY_MAX < time_mono())
            reconcile_retry_free(map_remove(&rc->retries, key));
    }
}

/* In a background run: true when its next try is not due. */
bool reconcile_retry_must_wait(const struct reconcile *rc, struct recon_item *item)
{
    _cleanup_free_ char *key = reconcile_retry_key_of(item);
    const struct reconcile_retry *retry = map_get(&rc->retries, key);

    if (!retry || STREQ(item->run->options.trigger, "command") || retry->at <= time_mono())
        return false;
    item->result = retry->result;
    item->retry_at = retry->at;
    free(item->reason);
    item->reason = retry->reason ? xstrdup(retry->reason) : NULL;
    free(item->hint);
    item->hint = retry->hint ? xstrdup(retry->hint) : NULL;
    return true;
}

bool reconcile_retry_is_due(const struct reconcile *rc)
{
    uint64_t now = time_mono();
    void *value;

    for (size_t i = 0; map_next(&rc->retries, &i, NULL, &value);)
        if (((const struct reconcile_retry *)value)->at <= now)
            return true;
    return false;
}

void reconcile_retry_done(struct reconcile *rc)
{
    void *value;

    for (size_t i = 0; map_next(&rc->retries, &i, NULL, &value);)
        reconcile_retry_free(value);
    map_done(&rc->retries);
}
