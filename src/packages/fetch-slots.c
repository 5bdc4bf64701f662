/*
 * A sandbox may have so many fetches and downloads under way; what it asks beyond that waits here,
 * in order, and begins anew when one has ended. Joining what somebody else has begun costs no turn.
 */
#include "lib/base/cleanup.h"
#include "packages/packages.h"

enum { RUNNING_MAX = 12 }; /* of 16 workers of each kind */

bool fetch_slot_take(struct ask *a, struct box **owner)
{
    struct box *b = a->box;

    if (b->running < RUNNING_MAX) {
        b->running++;
        *owner = b;
        return true;
    }
    a->state = ASK_PARKED;
    a->next = NULL;
    if (!b->parked)
        b->parked_tail = &b->parked;
    *b->parked_tail = a;
    b->parked_tail = &a->next;
    return false;
}

/*
 * Called whenever a request of the sandbox is over or gone, too: one that was let go on may have
 * found what it wanted without a turn, and then nothing would end that the next one waits for.
 */
void fetch_slot_next(struct box *box)
{
    struct ask *a = box->parked;

    if (!a || box->running >= RUNNING_MAX)
        return;
    box->parked = a->next;
    a->next = NULL;
    a->state = ASK_START;
    pages_look(a);
}

void fetch_slot_end(struct box *owner)
{
    if (!owner)
        return;
    owner->running--;
    fetch_slot_next(owner);
}

void fetch_slot_leave(struct box *box, struct ask *a)
{
    struct ask **at = &box->parked;

    while (*at && *at != a)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = a->next;
    if (!a->next)
        box->parked_tail = at;
}

void fetch_slots_forget(struct packages *reg, const struct box *box)
{
    void *value;

    for (size_t i = 0; map_next(&reg->page_fetches, &i, NULL, &value);)
        page_fetch_disown(value, box);
    for (size_t i = 0; map_next(&reg->package_downloads, &i, NULL, &value);)
        package_download_disown(value, box);
}
