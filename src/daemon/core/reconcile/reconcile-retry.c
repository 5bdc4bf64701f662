/*
 * What failed or was busy is remembered with the time of its next try. Background runs pass over it
 * until then and repeat what was said; a command tries at once.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "daemon/core/reconcile/reconcile-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

#define RETRY_FIRST (2 * USEC_PER_SEC)
#define RETRY_MAX (600 * USEC_PER_SEC)
enum { RETRY_DOUBLINGS = 9 };

/* Something that could not be done, between two tries. */
struct reconcile_retry {
    unsigned tries;
    uint64_t at; /* time_mono() of the next */
    enum recon_result result;
    char *reason, *hint;
};

static void reconcile_retry_free(struct reconcile_retry *g)
{
    if (!g)
        return;
    free(g->reason);
    free(g->hint);
    free(g);
}

static char *reconcile_retry_key_of(const struct recon_item *item)
{
    return xasprintf("%s %d %s", item->engine->ops->name, (int)item->kind,
                     item->ref ? item->ref : item->id);
}

static struct reconcile_retry *reconcile_retry_find(const struct reconcile *rc,
                                                    const struct recon_item *item)
{
    _cleanup_free_ char *key = reconcile_retry_key_of(item);

    return map_get(&rc->retries, key);
}

/* A quarter more or less: many that failed together must not come back together. */
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
    struct reconcile_retry *g = map_get(&rc->retries, key);

    if (!g) {
        g = xnew0(struct reconcile_retry);
        map_add(&rc->retries, key, g);
    }
    g->tries++;
    g->at = time_mono() + reconcile_retry_pause_after(g->tries);
    g->result = item->result;
    free(g->reason);
    g->reason = item->reason ? xstrdup(item->reason) : NULL;
    free(g->hint);
    g->hint = item->hint ? xstrdup(item->hint) : NULL;
    item->retry_at = g->at;
}

void reconcile_retry_forget(struct reconcile *rc, const struct recon_item *item)
{
    _cleanup_free_ char *key = reconcile_retry_key_of(item);

    reconcile_retry_free(map_remove(&rc->retries, key));
}

/* Of objects that have gone by other hands: none of this run's items speaks of them. */
void reconcile_retry_trim(struct reconcile *rc)
{
    void *value;
    const char *key;

    for (size_t i = 0; map_next(&rc->retries, &i, &key, &value);) {
        struct reconcile_retry *g = value;

        if (g->at + 2 * RETRY_MAX < time_mono())
            reconcile_retry_free(map_remove(&rc->retries, key));
    }
}

/* In a background run: its time has not come. */
bool reconcile_retry_must_wait(const struct reconcile *rc, struct recon_item *item)
{
    const struct reconcile_retry *g = reconcile_retry_find(rc, item);

    if (!g || STREQ(item->run->options.trigger, "command") || g->at <= time_mono())
        return false;
    item->result = g->result;
    item->retry_at = g->at;
    free(item->reason);
    item->reason = g->reason ? xstrdup(g->reason) : NULL;
    free(item->hint);
    item->hint = g->hint ? xstrdup(g->hint) : NULL;
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
