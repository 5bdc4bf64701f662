/*
 * A client may run RUNNING_MAX fetches and downloads at a time. Further requests are parked in order
 * and start again when a slot is free. A request that joins a running fetch or download needs no
 * slot.
 */
#include "lib/base/cleanup.h"
#include "packages/packages.h"

enum { RUNNING_MAX = 12 }; /* of 16 workers of each kind */

bool fetch_slot_take(struct packages_request *q, struct packages_client **owner)
{
    struct packages_client *client = q->client;

    if (client->running < RUNNING_MAX) {
        client->running++;
        *owner = client;
        return true;
    }
    q->state = REQUEST_PARKED;
    q->next = NULL;
    if (!client->parked)
        client->parked_tail = &client->parked;
    *client->parked_tail = q;
    client->parked_tail = &q->next;
    return false;
}

/*
 * Also called when a request of the client ends: a request that was unparked may find its page in
 * the store and take no slot. Then no slot ends that could wake the next parked request.
 */
void fetch_slot_next(struct packages_client *client)
{
    struct packages_request *q = client->parked;

    if (!q || client->running >= RUNNING_MAX)
        return;
    client->parked = q->next;
    q->next = NULL;
    q->state = REQUEST_START;
    page_lookup_start(q);
}

void fetch_slot_end(struct packages_client *owner)
{
    if (!owner)
        return;
    owner->running--;
    fetch_slot_next(owner);
}

void fetch_slot_leave(struct packages_client *client, struct packages_request *q)
{
    struct packages_request **at = &client->parked;

    while (*at && *at != q)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = q->next;
    if (!q->next)
        client->parked_tail = at;
}

void fetch_slots_forget(struct packages *pkgs, const struct packages_client *client)
{
    void *value;

    for (size_t i = 0; map_next(&pkgs->page_fetches, &i, NULL, &value);)
        page_fetch_disown(value, client);
    for (size_t i = 0; map_next(&pkgs->package_downloads, &i, NULL, &value);)
        package_download_disown(value, client);
}
