/*
 * Inside of ripcord-packages: the structs that its files share. The program has one event loop.
 * Only the loop's thread touches these structs; workers get jobs with copies of their input
 * (page-lookup.c, page-fetch.c, package-download.c, admin.c).
 *
 * The life of a request:
 * - An index page: look it up in the store. When no fresh page is stored, join the one fetch of
 *   that page, then look it up again.
 * - A file: look it up in its index page, which lists its digest. Then send it from the store, or
 *   join the one download of that digest.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/map.h"
#include "lib/http/server/http-server.h"
#include "packages/blobs.h"
#include "packages/config.h"
#include "packages/package-name.h"
#include "packages/page-store.h"

struct loop;
struct loop_timer;
struct loop_watch;
struct page_fetch;
struct package_download;
struct packages_control;
struct pool;

/*
 * The status for something that is not stored while the upstream must not be asked. 504 would fit,
 * but npm and others repeat requests that end with 500 or more for minutes. 404 would be wrong: the
 * package may exist.
 */
enum { STATUS_OFFLINE = 424 };

struct packages_counters {
    uint64_t requests, hits, misses, stale, denials, errors, mismatches, weak;
    uint64_t bytes_store;    /* sent to clients from the store */
    uint64_t bytes_upstream; /* downloaded from upstreams */
};

/* One sandbox, as a client of the cache. */
struct packages_client {
    struct packages *pkgs;
    struct packages_client *next;
    char *id;                   /* owned */
    struct http_server *server; /* owned */
    uint32_t owner;             /* whose connections are served, if they are limited to one user */
    struct packages_counters counters[ECO_MAX];
    unsigned running;                               /* its fetches and downloads */
    struct packages_request *parked, **parked_tail; /* requests that wait for a fetch slot */
    uint64_t tokens, tokens_at;     /* rate limit: thousandths of a request, and their time */
    uint64_t reported, reported_at; /* limit of events: how many count, and since when */
};

struct packages {
    struct loop *loop;
    struct packages_config config;
    int dirfd;   /* the cache's folder */
    int wake_fd; /* eventfd: workers report the progress of downloads */
    struct loop_watch *wake;
    struct pool *disk, *pages, *downloads;
    struct blobs blobs;
    struct packages_client *clients;
    struct packages_counters counters[ECO_MAX];
    struct map page_fetches;      /* by path of the page */
    struct map package_downloads; /* by digest */
    struct packages_control *control;
    unsigned open_requests;
    struct map missing; /* pages that an upstream did not have; values: time_mono() of its answer */
    uint64_t page_bytes; /* bytes of pages stored since the last trim */
    bool trimming;
};

enum request_kind { REQUEST_PAGE, REQUEST_FILE };
enum request_state {
    REQUEST_START,
    REQUEST_LOOKUP,   /* a worker reads the stored page */
    REQUEST_PARKED,   /* waits for a fetch slot */
    REQUEST_FETCH,    /* waits for its page */
    REQUEST_DOWNLOAD, /* waits for a download, or streams it */
    REQUEST_SEND,     /* streams a stored file */
};

/* One request of a client. */
struct packages_request {
    struct packages *pkgs;
    struct packages_client *client; /* NULL once the client is forgotten */
    struct http_req *req;           /* NULL once the peer has gone */
    struct packages_request *next;  /* in the list of its slot queue, fetch or download */
    enum request_kind kind;
    enum request_state state;
    enum ecosystem eco;
    struct upstream *upstream;
    char *name;                         /* owned, normal form */
    char *path;                         /* owned: its index page, below the cache's folder */
    char *other_path;                   /* owned: a second page that may list the file, or NULL */
    char *file;                         /* owned; REQUEST_FILE */
    const char *section, *content_type; /* REQUEST_PAGE */
    char *host;                         /* owned; links of npm pages name this host */
    bool full;                          /* npm: the full document */
    bool fetched;                       /* the upstream was asked for this request */
    bool stale;                         /* the upstream did not answer */
    bool metadata;                      /* wants the .metadata file of a file (PEP 658) */
    bool started;                       /* the head of the response is sent */
    bool head;                          /* the method is HEAD */
    struct digest want;                 /* REQUEST_FILE, PyPI: the digest in the link */
    struct digest digest;
    struct err fetch_err; /* why the upstream did not answer */
    struct package_download *package_download;
    struct page_fetch *page_fetch;
    int fd; /* owned */
    uint64_t sent, length;
};

/* serve.c reads requests; answer.c sends pages and files. */
void serve_request(void *client, struct http_req *req);
void request_free(struct packages_request *q);
/* Each of these sends the response and frees the request. */
void request_fail(struct packages_request *q, const struct err *err);
void request_fail_status(struct packages_request *q, int status, enum err_code code,
                         const char *fmt, ...) _printf_(4, 5);
void request_send_page(struct packages_request *q, struct buf *body);
void request_send_blob(struct packages_request *q, int fd, uint64_t size, bool hit); /* takes fd */
/* Sends the bytes before `limit`; ends and frees the request when all are sent. */
void request_pump(struct packages_request *q, uint64_t limit);
/* Sends the head of a response whose bytes are still being downloaded. */
void request_begin_stream(struct packages_request *q, uint64_t length);
/* The counters of the request's client. Never NULL: a forgotten client has dummy counters. */
struct packages_counters *request_counters(struct packages_request *q);

/* page-lookup.c: goes on to the page, its fetch, or the file. */
void page_lookup_start(struct packages_request *q);

/* page-fetch.c */
void page_fetch_join(struct packages_request *q);
void page_fetch_leave(struct packages_request *q); /* the peer has gone */
void page_fetch_disown(struct page_fetch *p, const struct packages_client *client);

/* package-download.c */
int package_downloads_init(struct packages *pkgs, struct err *err);
void package_downloads_done(struct packages *pkgs);
void package_download_join(struct packages_request *q, const struct page_file *f);
void package_download_leave(struct packages_request *q); /* the peer has gone */
void package_download_disown(struct package_download *d, const struct packages_client *client);

/*
 * fetch-slots.c: limits the fetches and downloads of one client, so that it cannot keep all workers
 * from the others.
 */
/* Takes a slot of the request's client. False: the request is parked, and goes on through
 * page_lookup_start() when a slot is free. */
bool fetch_slot_take(struct packages_request *q, struct packages_client **owner);
void fetch_slot_end(struct packages_client *owner);   /* NULL: the client is forgotten */
void fetch_slot_next(struct packages_client *client); /* unparks a request if a slot is free */
void fetch_slot_leave(struct packages_client *client, struct packages_request *q);
void fetch_slots_forget(struct packages *pkgs, const struct packages_client *client);

/* page-trim.c */
void page_trim_note(struct packages *pkgs, uint64_t bytes); /* a page of that size was stored */
/* Removes the oldest pages until at most `keep` bytes are left. */
void page_trim_start(struct packages *pkgs, uint64_t keep);

/* packages.c */
void packages_set_missing(struct packages *pkgs, const char *path);
bool packages_is_missing(struct packages *pkgs, const char *path);
void packages_upstream_failed(struct packages *pkgs, struct upstream *u, const struct err *err);
void packages_upstream_works(struct packages *pkgs, struct upstream *u);
/* `fmt`, …: an object for json_pack() without "type". */
void packages_event(struct packages *pkgs, const char *type, const char *fmt, ...);
/* Whether this client may cause one more event. A limit keeps it from filling the event log. */
bool packages_may_report(struct packages_client *client);
/* Takes fd. owner_only: other users' connections are closed. */
int packages_listen(struct packages *pkgs, const char *id, int fd, bool owner_only,
                    struct err *err);
bool packages_forget(struct packages *pkgs, const char *id);

/* control.c */
int control_new(struct packages *pkgs, int fd, struct err *err);
void control_free(struct packages_control *c);
void control_event(struct packages_control *c, const char *json);
void control_ready(struct packages_control *c);

/* admin.c: requests of the daemon, answered by workers. fn is called on the loop with a JSON
 * text. */
typedef void (*admin_fn)(void *arg, uint64_t seq, const char *json, const struct err *err);
struct admin_request {
    int type; /* enum packages_msg_type */
    uint64_t seq, keep, age;
    bool has_keep;
    const char *subject;
    admin_fn fn;
    void *arg;
};
void admin_run(struct packages *pkgs, const struct admin_request *request);
char *admin_stats(struct packages *pkgs); /* JSON, malloc'd */
