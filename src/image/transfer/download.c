#include "image/transfer/download.h"

#include <string.h>

#include "image/transfer/events.h"
#include "image/transfer/remote.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/fetch.h"

#define TICK (200 * USEC_PER_MSEC)

struct transfer_download {
    int file, events;
    uint64_t at, total; /* bytes; total 0: nobody knows */
    uint64_t told;      /* when, last */
};

static int transfer_download_tell(struct transfer_download *d, struct err *err)
{
    uint64_t now = time_mono();

    if (d->told && now - d->told < TICK)
        return 0;
    d->told = now;
    if (events_progress(d->events, "download", 0, 1, d->at, d->total) < 0)
        return err_set(err, ERR_CONFLICT, "the download was given up: nobody waits for it");
    return 0;
}

static int transfer_download_on_head(void *arg, const struct fetch_head *head, struct err *err)
{
    struct transfer_download *d = arg;

    d->total = head->length == UINT64_MAX ? 0 : head->length;
    return transfer_download_tell(d, err);
}

static int transfer_download_on_data(void *arg, const char *data, size_t len, struct err *err)
{
    struct transfer_download *d = arg;
    int r = fd_write_all(d->file, data, len);

    if (r < 0)
        return err_sys(err, -r, "write a download");
    d->at += len;
    return transfer_download_tell(d, err);
}

static int transfer_download_judge(int status, const char *url, struct err *err)
{
    switch (status) {
    case 401:
    case 403:
        return err_set(err, ERR_DENIED, "the server does not give out '%.300s' (status %d)", url,
                       status);
    case 404:
    case 410:
        return err_set(err, ERR_NOT_FOUND, "the server has no '%.300s' (status %d)", url, status);
    case 429:
        return err_set(err, ERR_LIMIT, "the server says that it was asked too often for '%.300s'",
                       url);
    default:
        return err_set(err, ERR_ENGINE, "the server answers '%.300s' with status %d", url, status);
    }
}

static json_t *transfer_download_result(const struct transfer_download *d,
                                        const struct fetch_head *head)
{
    json_t *doc = json_pack("{s:I}", "bytes", (json_int_t)d->at);
    int64_t modified;

    if (head->etag)
        json_object_set_new(doc, "etag", json_string(head->etag)); /* one not in UTF-8 is none */
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
    struct fetch_head head = {0};
    int r = fetch_run(fetcher, &f, &head, err);

    if (r == -ERR_LIMIT)
        err_hint(err, "'transfer.add_max' in ripcord.yaml says how long such a file may be.");
    if (r == -ERR_DENIED)
        err_hint(err, "'transfer.add_hosts' in ripcord.yaml names hosts with private addresses that "
                      "builds may ask; from https nothing leads to http.");
    if (r < 0)
        return r;
    if (head.status == 304 && s->etag)
        *ret = json_pack("{s:b}", "same", 1);
    else if (head.status == 200)
        *ret = transfer_download_result(d, &head);
    else
        r = transfer_download_judge(head.status, s->name, err);
    fetch_head_done(&head);
    return r;
}

int download_run(const struct settings *s, int file, int events, json_t **ret, struct err *err)
{
    bool plain = strncmp(s->name, "http://", 7) == 0;
    struct transfer_download d = {.file = file, .events = events};
    const struct fetcher_config rules = {.hosts = s->hosts, .private_ok = true, .http_any = plain};
    struct fetcher *fetcher = remote_fetcher(s, &rules);
    int r = transfer_download_get(fetcher, s, &d, ret, err);

    fetcher_free(fetcher);
    return r;
}
