#include "daemon/engine/native/build-serve.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { AT_ONCE_MAX = 64 };

struct build_serve_job {
    struct build_serve *s;
    struct build_serve_job *next;
    pthread_t thread;
    unsigned step;
    json_t *ask; /* owned */
};

struct build_serve {
    struct native_task task;
    int to;
    pthread_mutex_t lock;          /* protects writes to `to` and the members below */
    struct build_serve_job *ended; /* threads to join */
    struct build_serve_job *running;
    pthread_cond_t news; /* a thread has ended */
};

int build_serve_new(const struct native_task *task, int to, struct build_serve **ret,
                    struct err *err)
{
    struct build_serve *s = xnew0(struct build_serve);

    *s = (struct build_serve){.task = *task,
                              .to = to,
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .news = PTHREAD_COND_INITIALIZER};
    s->task.cancel_fd = eventfd(0, EFD_CLOEXEC);
    if (s->task.cancel_fd < 0) {
        free(s);
        return err_sys(err, errno, "make an event descriptor");
    }
    *ret = s;
    return 0;
}

int build_serve_send(struct build_serve *s, const json_t *doc, struct err *err)
{
    _cleanup_free_ char *text = json_to_text(doc, false), *line = xasprintf("%s\n", text);
    int r;

    pthread_mutex_lock(&s->lock);
    r = fd_write_all(s->to, line, strlen(line));
    pthread_mutex_unlock(&s->lock);
    return r < 0 ? err_sys(err, -r, "send to ripcord-build") : 0;
}

/* With the lock held. */
static void build_serve_move_to_ended(struct build_serve_job *j)
{
    struct build_serve_job **p = &j->s->running;

    while (*p != j)
        p = &(*p)->next;
    *p = j->next;
    j->next = j->s->ended;
    j->s->ended = j;
}

struct build_request_type {
    const char *name;
    native_task_fn fn;
};

static const struct build_request_type request_types[] = {
    {"run", native_build_run}, {"pull", native_build_pull}, {"fetch", native_build_fetch}};

static const struct build_request_type *build_serve_type_of(const json_t *doc)
{
    for (size_t i = 0; i < ARRAY_SIZE(request_types); i++)
        if (json_object_get(doc, request_types[i].name))
            return &request_types[i];
    return NULL;
}

bool build_serve_is_request(const json_t *doc)
{
    return build_serve_type_of(doc) != NULL;
}

static json_t *build_serve_answer_of(const struct build_serve_job *j)
{
    const struct build_request_type *q = build_serve_type_of(j->ask);
    _cleanup_err_ struct err err = ERR_INIT;
    json_t *ret = NULL;

    if (q->fn(&j->s->task, j->step, json_object_get(j->ask, q->name), &ret, &err) >= 0)
        return ret;
    json_decref(ret);
    return json_from_err(&err);
}

static void *build_serve_work(void *arg)
{
    struct build_serve_job *j = arg;
    struct build_serve *s = j->s;
    _cleanup_json_ json_t *answer = build_serve_answer_of(j);

    json_object_set(answer, "id", json_object_get(j->ask, "id"));
    (void)build_serve_send(
        s, answer, NULL); /* a failure means that ripcord-build has ended, which its reader sees */
    pthread_mutex_lock(&s->lock);
    build_serve_move_to_ended(j);
    pthread_cond_signal(&s->news);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void build_serve_join(struct build_serve_job *j)
{
    for (struct build_serve_job *next; j; j = next) {
        next = j->next;
        pthread_join(j->thread, NULL);
        json_decref(j->ask);
        free(j);
    }
}

static struct build_serve_job *build_serve_take_ended(struct build_serve *s, size_t *ret_running)
{
    struct build_serve_job *ended;

    *ret_running = 0;
    pthread_mutex_lock(&s->lock);
    ended = TAKE_PTR(s->ended);
    for (const struct build_serve_job *j = s->running; j; j = j->next)
        ++*ret_running;
    pthread_mutex_unlock(&s->lock);
    return ended;
}

int build_serve_begin(struct build_serve *s, unsigned step, json_t *ask, struct err *err)
{
    struct build_serve_job *j;
    size_t running;
    int r;

    build_serve_join(build_serve_take_ended(s, &running));
    if (running >= AT_ONCE_MAX) {
        json_decref(ask);
        return err_set(err, ERR_LIMIT, "ripcord-build sent over %d requests at once", AT_ONCE_MAX);
    }
    j = xnew0(struct build_serve_job);
    *j = (struct build_serve_job){.s = s, .step = step, .ask = ask};
    pthread_mutex_lock(&s->lock);
    r = pthread_create(&j->thread, NULL, build_serve_work, j);
    if (r == 0) {
        j->next = s->running;
        s->running = j;
    }
    pthread_mutex_unlock(&s->lock);
    if (r == 0)
        return 0;
    json_decref(j->ask);
    free(j);
    return err_sys(err, r, "start a thread");
}

void build_serve_cancel(struct build_serve *s)
{
    (void)!eventfd_write(s->task.cancel_fd, 1);
}

void build_serve_free(struct build_serve *s)
{
    size_t running;

    if (!s)
        return;
    build_serve_cancel(s);
    pthread_mutex_lock(&s->lock);
    while (s->running)
        pthread_cond_wait(&s->news, &s->lock);
    pthread_mutex_unlock(&s->lock);
    build_serve_join(build_serve_take_ended(s, &running));
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    fd_close(s->task.cancel_fd);
    free(s);
}
