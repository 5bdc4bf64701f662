#include "daemon/api/port-pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/api/call.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

/* Of one sandbox: the relay of a container has 64 jobs, and requests take up to 48. */
enum { POOL_SANDBOX_MAX = 8, POOL_MAX = 256 };

#define POOL_TIME (5 * USEC_PER_SEC)

struct port_idle {
    struct port_idle *next;
    char id[SANDBOX_ID_LEN + 1]; /* a name may be another sandbox's by now */
    uint16_t port;
    int fd;
    struct loop_watch *watch;
    struct loop_timer *timer;
};

static struct port_idle *idles; /* the one that came last is first; on the loop's thread */
static unsigned n_idles;

static void port_pool_remove(struct port_idle *c)
{
    struct port_idle **at = &idles;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    n_idles--;
    loop_watch_free(c->watch);
    loop_timer_free(c->timer);
    fd_close(c->fd);
    free(c);
}

static void port_pool_on_ready(void *arg, int events _unused_)
{
    port_pool_remove(arg);
}

static void port_pool_on_time(void *arg)
{
    port_pool_remove(arg);
}

static const struct sandbox *port_pool_sandbox(struct api *a, const char *name)
{
    const struct sandbox *sb = manager_find(api_settings(a)->manager, name, NULL);

    return sb && sb->state == SANDBOX_RUNNING ? sb : NULL;
}

/* The loop may not have seen yet that it has ended. */
static bool port_pool_is_quiet(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static bool port_pool_has_room(const char *id)
{
    unsigned n = 0;

    for (const struct port_idle *c = idles; c; c = c->next)
        n += STREQ(c->id, id);
    return n < POOL_SANDBOX_MAX && n_idles < POOL_MAX;
}

int port_pool_take(struct api *a, const char *sandbox, uint16_t port)
{
    const struct sandbox *sb = port_pool_sandbox(a, sandbox);

    for (struct port_idle *c = idles, *next; sb && c; c = next) {
        int fd;

        next = c->next;
        if (c->port != port || !STREQ(c->id, sb->id))
            continue;
        fd = TAKE_FD(c->fd);
        port_pool_remove(c);
        if (port_pool_is_quiet(fd))
            return fd;
        fd_close(fd);
    }
    return -1;
}

void port_pool_give(struct api *a, const char *sandbox, uint16_t port, int fd)
{
    const struct sandbox *sb = port_pool_sandbox(a, sandbox);
    struct loop *loop = api_settings(a)->loop;
    struct port_idle *c;

    if (!sb || !port_pool_has_room(sb->id)) {
        fd_close(fd);
        return;
    }
    c = xnew0(struct port_idle);
    *c = (struct port_idle){.next = idles, .port = port, .fd = fd};
    memcpy(c->id, sb->id, sizeof(c->id));
    idles = c;
    n_idles++;
    c->timer = loop_timer_new(loop, port_pool_on_time, c);
    c->watch = loop_watch_new(loop, fd, port_pool_on_ready, c);
    if (!c->watch) {
        port_pool_remove(c);
        return;
    }
    loop_watch_set(c->watch, LOOP_READ);
    loop_timer_set(c->timer, POOL_TIME, false);
}

void port_pool_close(void)
{
    while (idles)
        port_pool_remove(idles);
}
