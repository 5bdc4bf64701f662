/*
 * A hijacked stream from its first byte to its last, as the relay makes an exec of it: engine
 * frames, guest frames, the order in which they may come. However the bytes are cut, the exec ends
 * the same way: once, with a status only when the guest reported one.
 */
#include "fuzz.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

/* ---- what the relay would do outside of the stream ---- */

static unsigned losses;

void loss_begin(struct relay_exec *x, const struct err *why)
{
    const struct err none = {.code = ERR_ENGINE};

    losses++;
    exec_lose(&x->exec, why ? why : &none);
}

void loss_forget(struct relay_exec *x)
{
    x->loss = NULL;
}

void relay_memory_watch(struct relay *r)
{
    (void)r;
}

void work_submit(struct relay *r, struct relay_work *w)
{
    (void)r;
    w->done(w);
}

int call_open(const struct relay *r, const char *user, const char *const *args,
              const struct deadline *by, struct opened *ret, enum docker_reason *ret_reason,
              struct err *err)
{
    (void)r, (void)user, (void)args, (void)by, (void)ret, (void)ret_reason;
    return err_set(err, ERR_ENGINE, "not here");
}

int call_inspect(const struct relay *r, const struct deadline *by, struct relay_container *ret,
                 struct err *err)
{
    (void)r, (void)by, (void)ret;
    return err_set(err, ERR_ENGINE, "not here");
}

static void nothing(struct supervisor *s)
{
    (void)s;
}

static const struct supervisor_ops ops = {
    .exec_size = sizeof(struct relay_exec),
    .exec_init = relay_exec_init,
    .exec_done = relay_exec_done,
    .launch = relay_exec_launch,
    .signal = relay_exec_signal,
    .kill = relay_exec_kill,
    .terminal = relay_exec_terminal,
    .has_survivors = relay_exec_has_survivors,
    .fill = relay_exec_fill,
    .over = relay_exec_over,
    .readable = relay_exec_readable,
    .stopping = nothing,
    .shut_down = nothing,
    .finish = nothing,
};

/* ---- one stream ---- */

struct outcome {
    enum supervised_exec_state state;
    unsigned losses;
    bool told;
    int wait_status;
    uint64_t bytes[JOURNAL_STREAMS];
};

/* Launched as by a daemon's message. The opening fails at once here, so the line is put up by hand
 * in its place. */
static struct relay_exec *exec_new(struct relay *r)
{
    struct relay_exec *x = xcalloc(1, sizeof(*x));
    struct supervised_exec *base = &x->exec;

    base->sup = &r->sup;
    base->dirfd = base->input.fd = -1;
    for (int i = 0; i < JOURNAL_STREAMS; i++) {
        base->streams[i].src.fd = base->streams[i].journal.fd = -1;
        base->streams[i].exec = base;
        base->streams[i].lost_errno = ENOSPC; /* counted, not written */
    }
    relay_exec_init(base);
    strv_list_push(&base->spec.args, (char *)"true");
    base->spec.argv = base->spec.args.v;
    base->next = r->sup.execs;
    r->sup.execs = base;
    relay_exec_attach(x, r);
    x->stream.state = GUEST_STREAM_GREETING;
    x->stream.next = r->guest_streams;
    r->guest_streams = &x->stream;
    return x;
}

static void run(const uint8_t *data, size_t size, size_t step, struct outcome *ret)
{
    struct docker docker = {.flavour = DOCKER_FLAVOUR_DOCKER};
    struct relay r = {.docker = &docker, .plan = {.user = "agent", .workdir = "/"}};
    struct relay_exec *x;

    supervisor_init(&r.sup, &ops);
    r.sup.state = SUP_RUNNING;
    losses = 0;
    x = exec_new(&r);
    for (size_t pos = 0; pos < size && x->stream.state != GUEST_STREAM_CLOSED; pos += step) {
        size_t have = MIN(size - pos, step);
        char *copy = fuzz_copy(data + pos, have);

        guest_stream_take(&x->stream, copy, have);
        free(copy);
    }
    *ret = (struct outcome){
        .state = x->exec.state,
        .losses = losses,
        .told = x->exit_known,
        .wait_status = x->exec.wait_status,
        .bytes = {x->exec.streams[0].dropped, x->exec.streams[1].dropped},
    };
    MUST(ret->state != EXEC_DRAINING);
    MUST(!r.guest_streams == (x->stream.state == GUEST_STREAM_CLOSED));
    MUST((ret->state == EXEC_OVER) == (x->stream.state == GUEST_STREAM_CLOSED));
    MUST(!(ret->told && ret->losses) && ret->losses <= 1);
    MUST(ret->told || !ret->wait_status);
    supervisor_done(&r.sup);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, cut;

    if (size > GUEST_STREAM_CHUNK)
        return 0;
    run(data, size, size ? size : 1, &whole);
    run(data, size, 3, &cut);
    MUST(memcmp(whole.bytes, cut.bytes, sizeof(whole.bytes)) == 0);
    MUST(whole.state == cut.state && whole.losses == cut.losses && whole.told == cut.told &&
         whole.wait_status == cut.wait_status);
    return 0;
}
