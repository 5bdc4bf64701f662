/*
 * Inside of ripcord-packages: the structs that its files share. One loop, whose thread alone
 * touches these; workers get jobs of their own (pages.c, downloads.c, admin.c).
 *
 * A request is an `ask`. For an index page: look (is a fresh one kept?), else join the page's one
 * fetch, then look again. For a file: look it up in its page, which gives its digest; then send it
 * from the store, or join its one download (flight).
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
#include "packages/name.h"
#include "packages/page.h"

struct loop;
struct loop_timer;
struct loop_watch;
struct pool;
struct control;

/*
 * What is not kept while no upstream may be asked. Not 504, which would be its name: npm and others
 * try whatever is over 500 again for minutes; not 404: it may well exist.
 */
enum { STATUS_OFFLINE = 424 };

struct counters {
    uint64_t requests, hits, misses, stale, denials, errors, mismatches, weak;
    uint64_t bytes_store,
        bytes_upstream; /* what went to clients from the store; what was fetched */
};

struct box { /* one sandbox */
    struct packages *reg;
    struct box *next;
    char *id;                   /* owned */
    struct http_server *server; /* owned */
    struct counters counters[ECO_MAX];
    unsigned running;                  /* fetches and downloads that it has begun */
    struct ask *parked, **parked_tail; /* requests that wait for one of those to end */
    uint64_t tokens, tokens_at;        /* thousandths of a request; when they were counted */
    uint64_t told, told_at;            /* its events that count against the limit; since when */
};

struct packages {
    struct loop *loop;
    struct config config;
    int dirfd, wake_fd;
    struct loop_watch *wake;
    struct pool *disk, *pages, *downloads;
    struct blobs blobs;
    struct box *boxes;
    struct counters counters[ECO_MAX];
    struct map page_fetches;      /* by path of the page */
    struct map package_downloads; /* by digest */
    struct control *control;
    unsigned asks;      /* requests under way */
    struct map missing; /* pages that an upstream did not have a moment ago; times of time_mono() */
    uint64_t page_bytes; /* new ones since the last trim */
    bool trimming;
};

enum ask_kind { ASK_PAGE, ASK_FILE };
enum ask_state {
    ASK_START,
    ASK_JOB,      /* a worker has the look */
    ASK_PARKED,   /* waits for its turn to ask an upstream */
    ASK_FETCH,    /* waits for its page */
    ASK_DOWNLOAD, /* waits for, or follows, a download */
    ASK_SEND,     /* a stored file is on its way out */
};

struct look;
struct package_download;
struct page_fetch;

struct ask {
    struct packages *reg;
    struct box *box;      /* NULL once it is forgotten */
    struct http_req *req; /* NULL once the peer has gone */
    struct ask *next;     /* in the list of what it waits for */
    enum ask_kind kind;
    enum ask_state state;
    enum ecosystem eco;
    struct upstream *upstream;
    char *name;                         /* owned, normal form */
    char *path;                         /* owned: its page's, in our folder */
    char *other_path;                   /* owned: of another that may list the file; may be NULL */
    char *file;                         /* owned; ASK_FILE */
    const char *section, *content_type; /* ASK_PAGE */
    char *host;                         /* owned; npm's pages are written for it */
    bool full;                          /* npm: the long document */
    bool fetched;                       /* the upstream has been asked for this one already */
    bool stale;                         /* and did not answer */
    bool metadata;                      /* the file beside the file (PEP 658) */
    bool started;                       /* the head of the answer is out */
    bool head;                          /* HEAD */
    struct digest want;                 /* ASK_FILE, PyPI: what the link says */
    struct digest digest;
    struct err fetch_err; /* why the upstream did not */
    struct package_download *package_download;
    struct page_fetch *page_fetch;
    int fd; /* owned */
    uint64_t sent, length;
};

/* serve.c: requests in; answer.c: files and pages out */
void serve_request(void *box, struct http_req *req);
void ask_free(struct ask *a);
/* Each of these answers and frees. */
void ask_fail(struct ask *a, const struct err *err);
void ask_fail_status(struct ask *a, int status, enum err_code code, const char *fmt, ...)
    _printf_(4, 5);
void ask_send_page(struct ask *a, struct buf *body);
void ask_send_blob(struct ask *a, int fd, uint64_t size, bool hit);
void ask_pump(struct ask *a, uint64_t limit); /* sends up to there; ends when all is out */
void ask_begin_stream(struct ask *a, uint64_t length);
struct counters *ask_counters(struct ask *a); /* the sandbox's, or a place for what nobody counts */

/* pages.c */
void pages_look(struct ask *a); /* on to the page, its fetch, or the file */
void page_fetch_disown(struct page_fetch *p, const struct box *box);
void page_fetch_leave(struct ask *a); /* its peer has gone */

/* downloads.c */
int package_downloads_init(struct packages *reg, struct err *err);
void package_downloads_done(struct packages *reg);
void package_download_join(struct ask *a, const struct page_file *f);
void package_download_leave(struct ask *a);
void package_download_disown(struct package_download *f, const struct box *box);

/* fetch-slots.c: what one sandbox asks of upstreams must not take all workers from the others */
bool fetch_slot_take(struct ask *a,
                     struct box **owner); /* false: parked, it comes back by pages_look() */
void fetch_slot_end(struct box *owner);   /* NULL is fine: it has been forgotten */
void fetch_slot_next(struct box *box);    /* lets a parked one go on, if there is room */
void fetch_slot_leave(struct box *box, struct ask *a);
void fetch_slots_forget(struct packages *reg, const struct box *box);

/* trim.c */
void trim_note(struct packages *reg, uint64_t bytes); /* a page of so many bytes is new */
void trim_pages(struct packages *reg,
                uint64_t keep); /* the oldest go until so many bytes are left */

/* packages.c */
void packages_set_missing(struct packages *reg, const char *path);
bool packages_is_missing(struct packages *reg, const char *path);
void packages_upstream_failed(struct packages *reg, struct upstream *u, const struct err *err);
void packages_upstream_works(struct packages *reg, struct upstream *u);
/* `fmt`, … as json_pack() takes them, an object without "type". */
void packages_event(struct packages *reg, const char *type, const char *fmt, ...);
/* Whether one more event of this sandbox's doing is worth telling: it could fill the log of all. */
bool packages_may_tell(struct box *box);
int packages_listen(struct packages *reg, const char *id, int fd, struct err *err); /* takes fd */
bool packages_forget(struct packages *reg, const char *id);

/* control.c */
int control_new(struct packages *reg, int fd, struct err *err);
void control_free(struct control *c);
void control_event(struct control *c, const char *json);
void control_ready(struct control *c);

/* admin.c: questions of the daemon that workers answer. Calls fn on the loop with a JSON text. */
typedef void (*admin_fn)(void *arg, uint64_t seq, const char *json, const struct err *err);
struct admin_ask {
    int type; /* enum packages_msg_type */
    uint64_t seq, keep, age;
    bool has_keep;
    const char *subject;
    admin_fn fn;
    void *arg;
};
void admin_run(struct packages *reg, const struct admin_ask *ask);
char *admin_stats(struct packages *reg); /* JSON, malloc'd */
