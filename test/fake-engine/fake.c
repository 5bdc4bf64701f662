/*
 * The engine's operations over a table of sandboxes. The table belongs to the process, not to the
 * engine object, so that a test can "restart the daemon". One lock protects it; delays and faults
 * come before the lock.
 */
#include "fake-engine/fake.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-objects.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/handshake.h"
#include "daemon/engine/sandbox-request.h"
#include "fake-engine/supervisor.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"

struct fake_sandbox {
    struct fake_sandbox *next;
    char *state_dir; /* of its root: an engine does not see those of other roots */
    char id[33], name[64], hash[65];
    char *spec;
    char kept[65]; /* hash of the state before a re-creation; "": none is kept */
    struct fake_supervisor *supervisor;
    enum fake_outside outside;
};

struct fake_engine {
    struct engine engine;
    char *state_dir;
    uint64_t journal_budget;
    struct fake_fault faults[FAKE_OPS];
    bool faulty[FAKE_OPS];
};

static pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_sandbox *fake_sandboxes;
static unsigned fake_generation; /* of all images; part of their digests */

static void unlock(pthread_mutex_t **m)
{
    pthread_mutex_unlock(*m);
}
#define FAKE_LOCKED()                                                                              \
    _cleanup_(unlock) _unused_ pthread_mutex_t *locked = &fake_lock;                               \
    pthread_mutex_lock(locked)

static struct fake_sandbox **find(const char *state_dir, const char *id)
{
    struct fake_sandbox **p = &fake_sandboxes;

    while (*p && !(STREQ((*p)->id, id) && (!state_dir || STREQ((*p)->state_dir, state_dir))))
        p = &(*p)->next;
    return p;
}

static void sandbox_free(struct fake_sandbox *b)
{
    fake_supervisor_end(b->supervisor);
    free(b->state_dir);
    free(b->spec);
    free(b);
}

/* Supervisors are processes of their own with a real engine; the thread sanitizer would report the
 * threads that stand for them. */
__attribute__((destructor)) static void end_supervisors(void)
{
    while (fake_sandboxes) {
        struct fake_sandbox *b = fake_sandboxes;

        fake_sandboxes = b->next;
        sandbox_free(b);
    }
}

static bool take_fault(struct fake_engine *f, enum fake_op op, struct fake_fault *ret)
{
    FAKE_LOCKED();

    if (!f->faulty[op])
        return false;
    *ret = f->faults[op];
    if (f->faults[op].times && --f->faults[op].times == 0)
        f->faulty[op] = false;
    return true;
}

static int fault(struct engine *e, enum fake_op op, const struct deadline *by, struct err *err)
{
    struct fake_fault f;
    struct timespec ts;

    if (!take_fault((struct fake_engine *)e, op, &f))
        return 0;
    ts = (struct timespec){(time_t)(f.delay / USEC_PER_SEC), (long)(f.delay % USEC_PER_SEC) * 1000};
    nanosleep(&ts, NULL);
    if (deadline_passed(by))
        return err_set(err, ERR_TIMEOUT, "the fake engine took too long");
    return f.code ? err_set(err, f.code, "the fake engine was told to fail") : 0;
}

static struct engine *fake_make(const struct engine_config *config)
{
    struct fake_engine *f = xnew0(struct fake_engine);

    f->engine.exec_root = xasprintf("%s/execs", config->state_dir);
    f->state_dir = xstrdup(config->state_dir);
    f->journal_budget = config->journal_budget;
    return &f->engine;
}

static int fake_open(struct engine *e, const struct deadline *by, struct err *err)
{
    int r = fault(e, FAKE_OPEN, by, err);

    if (r < 0)
        return r;
    e->caps = ENGINE_CAP_PAUSE | ENGINE_CAP_STATS | ENGINE_CAP_MEMORY_LIMIT | ENGINE_CAP_CPU_LIMIT |
              ENGINE_CAP_PIDS_LIMIT;
    e->cache_modes = 1U << CACHE_OFF;
    return dir_make_all(AT_FDCWD, e->exec_root, 0700, err);
}

static void fake_close(struct engine *e)
{
    struct fake_engine *f = (struct fake_engine *)e;

    if (!f)
        return;
    free(f->engine.exec_root);
    free(f->state_dir);
    free(f);
}

static int fake_check(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    if (!spec->image || STREQ(spec->image, e->ops->default_image))
        return 0;
    return err_set(err, ERR_NOT_FOUND, "no image '%s' on engine '%s'", spec->image, e->ops->name);
}

static int fake_create(struct engine *e, const struct sandbox_request *req,
                       const struct deadline *by, struct err *err)
{
    const struct fake_engine *f = (struct fake_engine *)e;
    struct fake_sandbox **p;
    int r;

    r = fault(e, FAKE_CREATE, by, err);
    if (r < 0)
        return r;
    FAKE_LOCKED();
    p = find(f->state_dir, req->id);
    if (!*p) {
        *p = xnew0(struct fake_sandbox);
        (*p)->state_dir = xstrdup(f->state_dir);
        snprintf((*p)->id, sizeof((*p)->id), "%s", req->id);
    }
    if (req->keep && !STREQ((*p)->hash, req->hash))
        memcpy((*p)->kept, (*p)->hash, sizeof((*p)->kept));
    snprintf((*p)->name, sizeof((*p)->name), "%s", req->name);
    snprintf((*p)->hash, sizeof((*p)->hash), "%s", req->hash);
    free((*p)->spec);
    (*p)->spec = req->spec_text ? xstrdup(req->spec_text) : NULL;
    return 0;
}

/* Both ends of a new connection to a supervisor. */
static int make_pair(int ret[2], struct err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0)
        return err_sys(err, errno, "make a socket pair");
    return 0;
}

static int launch(struct fake_engine *f, const struct sandbox_request *req, int *ret,
                  struct err *err)
{
    FAKE_LOCKED();
    struct fake_sandbox *b = *find(f->state_dir, req->id);
    int pair[2], r;

    if (!b)
        return err_set(err, ERR_NOT_FOUND, "no sandbox '%s'", req->id);
    if (b->supervisor && fake_supervisor_alive(b->supervisor))
        return err_set(err, ERR_CONFLICT, "sandbox '%s' is running", req->id);
    r = make_pair(pair, err);
    if (r < 0)
        return r;
    fake_supervisor_end(b->supervisor);
    b->outside = FAKE_OUTSIDE_NOTHING;
    b->supervisor = fake_supervisor_start(req, f->engine.exec_root, f->journal_budget, pair[1]);
    *ret = pair[0];
    return 0;
}

static int fake_start(struct engine *e, const struct sandbox_request *req,
                      const struct deadline *by, struct engine_sandbox *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct engine_sandbox info = {.supervisor_fd = -1};
    int r;

    r = fault(e, FAKE_START, by, err);
    if (r < 0)
        return r;
    r = launch((struct fake_engine *)e, req, &fd, err);
    if (r < 0)
        return r;
    r = handshake_start(fd, req, by, &info, err);
    if (r < 0)
        return r;
    snprintf(info.id, sizeof(info.id), "%s", req->id);
    info.supervisor_fd = TAKE_FD(fd);
    *ret = info;
    return 0;
}

static int join(struct fake_engine *f, const char *id, int *ret, struct err *err)
{
    FAKE_LOCKED();
    const struct fake_sandbox *b = *find(f->state_dir, id);
    int pair[2], r;

    if (!b || !b->supervisor || !fake_supervisor_alive(b->supervisor))
        return err_set(err, ERR_NOT_FOUND, "sandbox '%s' has no running supervisor", id);
    r = make_pair(pair, err);
    if (r < 0)
        return r;
    fake_supervisor_connect(b->supervisor, pair[1]);
    *ret = pair[0];
    return 0;
}

static int fake_connect(struct engine *e, const char *id, const struct deadline *by,
                        struct engine_sandbox *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct engine_sandbox info = {.supervisor_fd = -1};
    int r;

    r = fault(e, FAKE_CONNECT, by, err);
    if (r < 0)
        return r;
    r = join((struct fake_engine *)e, id, &fd, err);
    if (r < 0)
        return r;
    r = handshake_hello(fd, id, by, &info, err);
    if (r < 0)
        return r;
    snprintf(info.id, sizeof(info.id), "%s", id);
    info.supervisor_fd = TAKE_FD(fd);
    *ret = info;
    return 0;
}

static int fake_cleanup(struct engine *e, const char *id, const struct deadline *by,
                        struct err *err)
{
    struct fake_sandbox *b;
    int r;

    r = fault(e, FAKE_CLEANUP, by, err);
    if (r < 0)
        return r;
    FAKE_LOCKED();
    b = *find(((struct fake_engine *)e)->state_dir, id);
    if (b)
        fake_supervisor_end(TAKE_PTR(b->supervisor));
    return 0;
}

static int fake_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err)
{
    _cleanup_close_ int execs = -1;
    struct fake_sandbox **p, *b;
    int r;

    r = fault(e, FAKE_REMOVE, by, err);
    if (r < 0)
        return r;
    FAKE_LOCKED();
    p = find(((struct fake_engine *)e)->state_dir, id);
    b = *p;
    if (b) {
        *p = b->next;
        sandbox_free(b);
    }
    r = dir_open(AT_FDCWD, e->exec_root, &execs, err);
    return r < 0 ? r : rmtree(execs, id, err);
}

static int fake_settle(struct engine *e, const struct sandbox_request *req,
                       const struct deadline *by, struct engine_sandbox *ret, struct err *err)
{
    struct fake_sandbox *b;
    int r = fault(e, FAKE_SETTLE, by, err);

    if (r < 0)
        return r;
    FAKE_LOCKED();
    b = *find(((struct fake_engine *)e)->state_dir, req->id);
    if (!b)
        return 0;
    if (*b->kept && STREQ(b->kept, req->hash))
        memcpy(b->hash, b->kept, sizeof(b->hash));
    b->kept[0] = '\0';
    if (STREQ(b->hash, req->hash))
        memcpy(ret->hash, b->hash, sizeof(ret->hash));
    free(b->spec);
    b->spec = req->spec_text ? xstrdup(req->spec_text) : NULL;
    return 0;
}

static int fake_verify(struct engine *e, const struct sandbox_request *req,
                       const struct deadline *by, struct err *err)
{
    (void)req;
    return fault(e, FAKE_VERIFY, by, err);
}

static bool fake_end(struct engine *e, const char *id, const struct deadline *by)
{
    return fake_cleanup(e, id, by, NULL) >= 0;
}

static void describe(const struct fake_sandbox *b, bool specs, struct engine_object *o)
{
    o->kept = *b->kept;
    o->whole = b->outside != FAKE_OUTSIDE_REMOVED;
    o->up = b->supervisor && fake_supervisor_alive(b->supervisor);
    o->name = xstrdup(b->name);
    o->spec = specs && b->spec ? xstrdup(b->spec) : NULL;
    snprintf(o->hash, sizeof(o->hash), "%s", b->hash);
}

static int fake_list(struct engine *e, bool specs, const struct deadline *by,
                     struct engine_objects *ret, struct err *err)
{
    const struct fake_engine *f = (struct fake_engine *)e;
    int r;

    r = fault(e, FAKE_LIST, by, err);
    if (r < 0)
        return r;
    FAKE_LOCKED();
    for (const struct fake_sandbox *b = fake_sandboxes; b; b = b->next)
        if (STREQ(b->state_dir, f->state_dir))
            describe(b, specs, engine_objects_add(ret, b->id));
    return 0;
}

/* Every feature is tried: one that is missing must show as a warning. */
static void fake_lack(const struct engine *e, uint32_t cap, struct err *ret)
{
    (void)e;
    if (cap != ENGINE_CAP_NET_OPEN)
        return;
    err_set(ret, ERR_UNSUPPORTED, "the fake engine has no cables");
    err_hint(ret, "Plug one in.");
}

const struct engine_ops engine_fake_ops = {
    .name = "fake",
    .default_image = "host",
    .starts_fast = true,
    .lack = fake_lack,
    .make = fake_make,
    .open = fake_open,
    .close = fake_close,
    .check = fake_check,
    .verify = fake_verify,
    .create = fake_create,
    .settle = fake_settle,
    .start = fake_start,
    .connect = fake_connect,
    .cleanup = fake_cleanup,
    .remove = fake_remove,
    .list = fake_list,
    .end = fake_end,
};

/* ---- the second kind: a backend that can be out of reach, with images and news ---- */

static struct engine *remote_make(const struct engine_config *config)
{
    _cleanup_free_ char *dir = xasprintf("%s/remote", config->state_dir);
    struct engine_config own = *config;

    own.state_dir = dir;
    return fake_make(&own);
}

static int remote_open(struct engine *e, const struct deadline *by, struct err *err)
{
    int r = fake_open(e, by, err);

    e->caps |= ENGINE_CAP_IMAGES | ENGINE_CAP_RUNTIME | ENGINE_CAP_STRICT;
    e->cache_modes |= 1U << CACHE_PRIVATE;
    return r;
}

static int remote_look(struct engine *e, const char *id, const struct deadline *by,
                       struct engine_sandbox *ret, struct err *err)
{
    const struct fake_sandbox *b;
    int r;

    r = fault(e, FAKE_LOOK, by, err);
    if (r < 0)
        return r;
    FAKE_LOCKED();
    b = *find(((struct fake_engine *)e)->state_dir, id);
    if (!b || b->outside == FAKE_OUTSIDE_REMOVED)
        ret->state = ENGINE_SANDBOX_ABSENT;
    else if (b->outside == FAKE_OUTSIDE_PAUSED)
        ret->state = ENGINE_SANDBOX_PAUSED;
    else
        ret->state = b->supervisor && fake_supervisor_alive(b->supervisor) ? ENGINE_SANDBOX_RUNNING
                                                                           : ENGINE_SANDBOX_STOPPED;
    return 0;
}

static int remote_resolve(struct engine *e, const struct sandbox_spec *spec,
                          const struct deadline *by, char **ret, struct err *err)
{
    int r = fault(e, FAKE_RESOLVE, by, err);

    if (r < 0)
        return r;
    FAKE_LOCKED();
    *ret = xasprintf("%s@%u", spec->image, fake_generation);
    return 0;
}

const struct engine_ops engine_fake_remote_ops = {
    .name = "remote",
    .default_image = "default",
    .connects_closed = true,
    .removes_running = true,
    .make = remote_make,
    .open = remote_open,
    .close = fake_close,
    .resolve = remote_resolve,
    .verify = fake_verify,
    .create = fake_create,
    .settle = fake_settle,
    .start = fake_start,
    .connect = fake_connect,
    .look = remote_look,
    .cleanup = fake_cleanup,
    .remove = fake_remove,
    .list = fake_list,
};

void fake_outside(struct engine *e, const char *id, enum fake_outside what)
{
    struct engine_news news = {.kind = ENGINE_NEWS_SANDBOX};
    struct fake_sandbox *b;

    snprintf(news.id, sizeof(news.id), "%s", id);
    pthread_mutex_lock(&fake_lock);
    b = *find(NULL, id);
    if (b)
        b->outside = what;
    pthread_mutex_unlock(&fake_lock);
    if (what == FAKE_OUTSIDE_REMOVED)
        fake_kill(id);
    engine_send_news(e, &news);
}

void fake_new_image(void)
{
    FAKE_LOCKED();

    fake_generation++;
}

void fake_set_fault(struct engine *e, enum fake_op op, const struct fake_fault *f)
{
    struct fake_engine *fe = (struct fake_engine *)e;
    FAKE_LOCKED();

    fe->faulty[op] = f != NULL;
    if (f)
        fe->faults[op] = *f;
}

void fake_kill(const char *id)
{
    FAKE_LOCKED();
    struct fake_sandbox *b = *find(NULL, id);

    if (b)
        fake_supervisor_end(TAKE_PTR(b->supervisor));
}

size_t fake_count(void)
{
    FAKE_LOCKED();
    size_t n = 0;

    for (const struct fake_sandbox *b = fake_sandboxes; b; b = b->next)
        n++;
    return n;
}

size_t fake_running(void)
{
    FAKE_LOCKED();
    size_t n = 0;

    for (const struct fake_sandbox *b = fake_sandboxes; b; b = b->next)
        n += b->supervisor && fake_supervisor_alive(b->supervisor);
    return n;
}

void fake_reset(void)
{
    FAKE_LOCKED();

    while (fake_sandboxes) {
        struct fake_sandbox *b = fake_sandboxes;

        fake_sandboxes = b->next;
        sandbox_free(b);
    }
}
