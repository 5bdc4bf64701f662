#include "image/transfer/download.h"

#include <string.h>

#include "image/transfer/events.h"
#include "image/transfer/repository.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"

#define REPORT_EVERY (200 * USEC_PER_MSEC)

struct transfer_download {
    int file, events;
    uint64_t at, total; /* bytes; total 0: unknown */
    uint64_t reported;  /* time of the last progress event */
};

static int transfer_download_report(struct transfer_download *d, struct err *err)
{
    uint64_t now = time_mono();

    if (d->reported && now - d->reported < REPORT_EVERY)
        return 0;
    d->reported = now;
    if (events_progress(d->events, "download", 0, 1, d->at, d->total) < 0)
        return err_set(err, ERR_CONFLICT, "the download was cancelled");
    return 0;
}

static int transfer_download_on_head(void *arg, const struct fetch_head *head, struct err *err)
{
    struct transfer_download *d = arg;

    d->total = head->length == UINT64_MAX ? 0 : head->length;
    return transfer_download_report(d, err);
}

static int transfer_download_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct transfer_download *d = arg;
    int r = fd_write_all(d->file, data, len);

    if (r < 0)
        return err_sys(err, -r, "write a download");
    d->at += len;
    return transfer_download_report(d, err);
}

static int transfer_download_status_error(int status, const char *url, struct err *err)
{
    switch (status) {
    case 401:
    case 403:
        return err_set(err, ERR_DENIED, "'%.300s': the server denies access (status %d)", url,
                       status);
    case 404:
    case 410:
        return err_set(err, ERR_NOT_FOUND, "'%.300s': not found on the server (status %d)", url,
                       status);
    case 429:
        return err_set(err, ERR_LIMIT, "'%.300s': too many requests (status 429)", url);
    default:
        return err_set(err, ERR_ENGINE, "'%.300s': the server answered with status %d", url,
                       status);
    }
}

static json_t *transfer_download_result(const struct transfer_download *d,
                                        const struct fetch_head *head)
{
    json_t *doc = json_pack("{s:I}", "bytes", (json_int_t)d->at);
    int64_t modified;

    if (head->etag)
        json_object_set_new(doc, "etag", json_string(head->etag)); /* not set if it is not UTF-8 */
    if (head->modified && time_http_parse(head->modified, &modified))
        json_object_set_new(doc, "modified", json_integer(modified));
    return doc;
}

static int transfer_download_get(struct fetcher *fetcher, const struct settings *s,
                                 struct transfer_download *d, json_t **ret, struct err *err)
{
    const struct fetch f = {.url = s->name,
                            .etag = s->etag,
                            .size_max = s->size_max,
                            .on_head = transfer_download_on_head,
                            .on_data = transfer_download_on_data,
                            .arg = d};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    int r = fetch_run(fetcher, &f, &head, err);

    if (r == -ERR_LIMIT)
        err_hint(err, "Set a higher limit with 'transfer.add_max' in ripcord.yaml.");
    if (r == -ERR_DENIED)
        err_hint(err,
                 "List hosts with private addresses in 'transfer.add_hosts' in ripcord.yaml. A "
                 "redirect from https to http is never followed.");
    if (r < 0)
        return r;
    if (head.status == 304 && s->etag) {
        *ret = json_pack("{s:b}", "same", 1);
        return 0;
    }
    if (head.status != 200)
        return transfer_download_status_error(head.status, s->name, err);
    *ret = transfer_download_result(d, &head);
    return 0;
}

int download_run(const struct settings *s, int file, int events, json_t **ret, struct err *err)
{
    bool plain = strncmp(s->name, "http://", 7) == 0;
    struct transfer_download d = {.file = file, .events = events};
    const struct fetcher_config rules = {.hosts = s->hosts, .private_ok = true, .http_any = plain};
    struct fetcher *fetcher = repository_fetcher(s, &rules);
    int r = transfer_download_get(fetcher, s, &d, ret, err);

    fetcher_free(fetcher);
    return r;
}
