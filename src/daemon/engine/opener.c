#include "daemon/engine/opener.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/engine/wait.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

/* When more news wait than this, the listener is told to look at all sandboxes instead. */
enum { NEWS_MAX = 4096 };

struct news_item {
    struct news_item *next;
    struct engine_news news;
};

/* ---- opening ---- */

/* With the lock held: waits until the running attempt has ended, or the deadline has passed. */
static int opener_await_other(struct engine_opener *f, const struct deadline *by, struct err *err)
{
    unsigned tries = f->tries;

    while (f->tries == tries) {
        if (deadline_passed(by))
            return err_set(err, ERR_TIMEOUT, "it does not answer");
        wait_a_slice(&f->changed, &f->lock);
    }
    return f->opened ? 0 : err_copy(err, &f->failure);
}

/* With the lock held; releases it while the backend opens. */
static int opener_open_here(struct engine *e, const struct deadline *by, struct err *err)
{
    struct engine_opener *f = e->opener;
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    f->opening = true;
    pthread_mutex_unlock(&f->lock);
    r = e->ops->open(e, by, &why);
    pthread_mutex_lock(&f->lock);
    f->opening = false;
    f->opened = r >= 0;
    f->tries++;
    err_done(&f->failure);
    if (r < 0)
        err_copy(&f->failure, &why);
    pthread_cond_broadcast(&f->changed);
    return r < 0 ? err_move(err, &why) : 0;
}

int opener_open(struct engine *e, const struct deadline *by, struct err *err)
{
    struct engine_opener *f = e->opener;
    int r = 0;

    pthread_mutex_lock(&f->lock);
    if (!f->opened)
        r = f->opening ? opener_await_other(f, by, err) : opener_open_here(e, by, err);
    pthread_mutex_unlock(&f->lock);
    return r < 0 ? err_wrap(err, "engine '%s' cannot be used", e->ops->name) : 0;
}

void opener_settle(struct engine *e, const struct err *failure)
{
    const struct engine_news back = {.kind = ENGINE_NEWS_BACK};
    struct engine_opener *f = e->opener;

    if (f->open) /* a failed attempt may be reported after the successful one */
        return;
    err_done(&f->trouble);
    if (failure) {
        err_copy(&f->trouble, failure);
        return;
    }
    f->open = true;
    if (f->listener)
        f->listener(f->listener_arg, e, &back);
}

bool engine_is_open(const struct engine *e)
{
    return e->opener->open;
}

const struct err *engine_trouble(const struct engine *e)
{
    return e->opener->trouble.code ? &e->opener->trouble : NULL;
}

/* ---- news ---- */

void engine_listen(struct engine *e, engine_news_fn fn, void *arg)
{
    e->opener->listener = fn;
    e->opener->listener_arg = arg;
}

static void opener_news_free(struct news_item *i)
{
    for (struct news_item *next; i; i = next) {
        next = i->next;
        if (i->news.kind == ENGINE_NEWS_PACKAGES)
            fd_close(i->news.fd);
        free(i);
    }
}

/* With the lock held. */
static void opener_news_push(struct engine_opener *f, const struct engine_news *news)
{
    struct news_item *i = xnew0(struct news_item);
    size_t n = 0;

    for (const struct news_item *p = f->first; p; p = p->next)
        n++;
    i->news = *news;
    if (n >= NEWS_MAX) {
        opener_news_free(f->first);
        f->first = NULL;
        f->last = &f->first;
        i->news = (struct engine_news){.kind = ENGINE_NEWS_BACK};
    }
    *f->last = i;
    f->last = &i->next;
}

void engine_send_news(struct engine *e, const struct engine_news *news)
{
    struct engine_opener *f = e->opener;
    uint64_t one = 1;

    pthread_mutex_lock(&f->lock);
    opener_news_push(f, news);
    pthread_mutex_unlock(&f->lock);
    if (write(f->news_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        log_debug("engine %s: cannot pass an event to the event loop: %s", e->ops->name,
                  strerror(errno));
}

static void opener_on_news(void *arg, int events)
{
    struct engine *e = arg;
    struct engine_opener *f = e->opener;
    struct news_item *first;
    uint64_t count;

    (void)events;
    if (read(f->news_fd, &count, sizeof(count)) < 0)
        return;
    pthread_mutex_lock(&f->lock);
    first = f->first;
    f->first = NULL;
    f->last = &f->first;
    pthread_mutex_unlock(&f->lock);
    for (struct news_item *i = first; i && f->listener; i = i->next)
        f->listener(f->listener_arg, e, &i->news);
    opener_news_free(first);
}

/* ---- new and free ---- */

struct engine_opener *opener_new(struct engine *e, struct loop *loop, struct pool *pool)
{
    struct engine_opener *f = xnew0(struct engine_opener);

    f->loop = loop;
    f->pool = pool;
    f->last = &f->first;
    pthread_mutex_init(&f->lock, NULL);
    wait_cond_init(&f->changed);
    f->news_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->watch = f->news_fd < 0 ? NULL : loop_watch_new(loop, f->news_fd, opener_on_news, e);
    if (f->watch)
        loop_watch_set(f->watch, LOOP_READ);
    return f;
}

void opener_free(struct engine_opener *f)
{
    loop_watch_free(f->watch);
    fd_close(f->news_fd);
    opener_news_free(f->first);
    err_done(&f->failure);
    err_done(&f->trouble);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
