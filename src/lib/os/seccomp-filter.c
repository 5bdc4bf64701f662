#include "lib/os/seccomp-filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#define FILTER_NR_END 0x40000000U /* x32: the same calls with other numbers */
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#endif

#define STMT(code, k) ((struct sock_filter)BPF_STMT(code, k))
#define JUMP(code, k, yes, no) ((struct sock_filter)BPF_JUMP(code, k, yes, no))
#define RETURN(value) STMT(BPF_RET | BPF_K, value)
#define FAIL(errnum) RETURN(SECCOMP_RET_ERRNO | (unsigned)(errnum))
#define ALLOW RETURN(SECCOMP_RET_ALLOW)
#define KILL RETURN(SECCOMP_RET_KILL_PROCESS)
#define LOAD(field) STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))

enum { JUMP_MAX = 255, VERDICTS_MAX = 32 };

/*
 * A program under construction. The targets of the tree's branches are resolved when the program is
 * complete. A target is the index of an instruction, or ~N for the N-th verdict.
 */
struct seccomp_program {
    struct sock_filter f[SECCOMP_FILTER_MAX];
    size_t n;
    struct {
        int yes, no;
    } to[SECCOMP_FILTER_MAX];
    const struct seccomp_call *verdicts[VERDICTS_MAX];
    size_t n_verdicts;
};

/* Call numbers from `first` up to the next span have one verdict; NULL: no such call. */
struct span {
    unsigned first;
    const struct seccomp_call *call;
};

static void seccomp_filter_put(struct seccomp_program *p, struct sock_filter what)
{
    assert(p->n < SECCOMP_FILTER_MAX);
    p->f[p->n++] = what;
}

/* The low word: both architectures are little-endian. */
static void seccomp_filter_put_load_arg(struct seccomp_program *p, unsigned arg)
{
    seccomp_filter_put(p,
                       STMT(BPF_LD | BPF_W | BPF_ABS,
                            (unsigned)(offsetof(struct seccomp_data, args) + arg * sizeof(__u64))));
}

/* ---- one call ---- */

static void seccomp_filter_put_no_bits(struct seccomp_program *p, const struct seccomp_rule *r)
{
    if (r->if_bits) {
        seccomp_filter_put_load_arg(p, r->if_arg);
        seccomp_filter_put(p, JUMP(BPF_JMP | BPF_JSET | BPF_K, r->if_bits, 0, 3));
    }
    seccomp_filter_put_load_arg(p, r->arg);
    seccomp_filter_put(p, JUMP(BPF_JMP | BPF_JSET | BPF_K, r->values[0], 0, 1));
    seccomp_filter_put(p, FAIL(r->errnum));
    seccomp_filter_put(p, ALLOW);
}

static void seccomp_filter_put_rule(struct seccomp_program *p, const struct seccomp_rule *r)
{
    if (r->test == CALL_NO_BITS) {
        seccomp_filter_put_no_bits(p, r);
        return;
    }
    seccomp_filter_put_load_arg(p, r->arg);
    for (size_t i = 0; i < r->n; i++) /* jumps over the rest and the code for "no match" */
        seccomp_filter_put(
            p, JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->values[i], (unsigned char)(r->n - i), 0));
    seccomp_filter_put(p, r->test == CALL_ONE_OF ? FAIL(r->errnum) : ALLOW);
    seccomp_filter_put(p, r->test == CALL_ONE_OF ? ALLOW : FAIL(r->errnum));
}

/* One family after the other, each followed by its protocols. */
static void seccomp_filter_put_sockets(struct seccomp_program *p, int errnum)
{
    const struct seccomp_socket *s;

    seccomp_filter_put_load_arg(p, 0);
    for (size_t i = 0; (s = seccomp_socket_at(i)); i++) {
        struct seccomp_rule protocols = {
            .arg = 2, .test = CALL_ONE_OF, .errnum = EPROTONOSUPPORT, .n = s->n};
        unsigned char block = (unsigned char)(s->n ? s->n + 3 : 1); /* instructions put below */

        seccomp_filter_put(p, JUMP(BPF_JMP | BPF_JEQ | BPF_K, s->family, 0, block));
        for (size_t j = 0; j < s->n; j++)
            protocols.values[j] = s->protocols[j];
        if (s->n)
            seccomp_filter_put_rule(p, &protocols);
        else
            seccomp_filter_put(p, ALLOW);
    }
    seccomp_filter_put(p, FAIL(errnum));
}

static void seccomp_filter_put_verdict(struct seccomp_program *p, const struct seccomp_call *call)
{
    if (!call) {
        seccomp_filter_put(p, FAIL(ENOSYS));
        return;
    }
    switch (call->verdict) {
    case CALL_ALLOW:
        seccomp_filter_put(p, ALLOW);
        break;
    case CALL_REFUSE:
        seccomp_filter_put(p, FAIL(call->errnum));
        break;
    case CALL_ARGS:
        seccomp_filter_put_rule(p, call->rule);
        break;
    case CALL_SOCKET:
        seccomp_filter_put_sockets(p, call->errnum);
        break;
    }
}

/* ---- all calls ---- */

static int seccomp_filter_by_number(const void *a, const void *b)
{
    const struct seccomp_call *const *x = a, *const *y = b;

    return (*x)->nr - (*y)->nr;
}

static bool seccomp_filter_same_verdict(const struct seccomp_call *a, const struct seccomp_call *b)
{
    if (!a || !b)
        return a == b || ((a ? a : b)->verdict == CALL_REFUSE && (a ? a : b)->errnum == ENOSYS);
    return a->verdict == b->verdict && a->errnum == b->errnum && a->rule == b->rule &&
           a->verdict != CALL_SOCKET;
}

static void seccomp_filter_add_span(struct span *spans, size_t *n, unsigned first,
                                    const struct seccomp_call *call)
{
    if (*n && spans[*n - 1].first == first) /* the two calls are adjacent */
        (*n)--;
    if (*n && seccomp_filter_same_verdict(spans[*n - 1].call, call))
        return;
    spans[(*n)++] = (struct span){first, call};
}

/* Spans from 0 to the highest number, without a gap. */
static size_t seccomp_filter_make_spans(enum seccomp_variant variant, struct span *spans)
{
    const struct seccomp_call *sorted[SECCOMP_FILTER_MAX] = {0}, *c;
    size_t n = 0, n_calls = 0;

    for (size_t i = 0; (c = seccomp_call_at(variant, i)); i++)
        if (c->nr >= 0)
            sorted[n_calls++] = c;
    qsort(sorted, n_calls, sizeof(sorted[0]), seccomp_filter_by_number);
    seccomp_filter_add_span(spans, &n, 0, NULL);
    for (size_t i = 0; i < n_calls; i++) {
        seccomp_filter_add_span(spans, &n, (unsigned)sorted[i]->nr, sorted[i]);
        seccomp_filter_add_span(spans, &n, (unsigned)sorted[i]->nr + 1, NULL);
    }
    return n;
}

/* Each verdict is emitted once, for all spans that have it. */
static int seccomp_filter_verdict_of(struct seccomp_program *p, const struct seccomp_call *call)
{
    size_t i = 0;

    while (i < p->n_verdicts && !seccomp_filter_same_verdict(p->verdicts[i], call))
        i++;
    if (i == p->n_verdicts) {
        assert(i < VERDICTS_MAX);
        p->verdicts[p->n_verdicts++] = call;
    }
    return ~(int)i;
}

/* The target that decides these spans. */
static int seccomp_filter_put_tree(struct seccomp_program *p, const struct span *spans, size_t n)
{
    size_t at = p->n;

    if (n == 1)
        return seccomp_filter_verdict_of(p, spans->call);
    seccomp_filter_put(p, JUMP(BPF_JMP | BPF_JGE | BPF_K, spans[n / 2].first, 0, 0));
    p->to[at].no = seccomp_filter_put_tree(p, spans, n / 2);
    p->to[at].yes = seccomp_filter_put_tree(p, spans + n / 2, n - n / 2);
    return (int)at;
}

static unsigned char seccomp_filter_way(const size_t *verdicts, size_t from, int to)
{
    size_t target = to < 0 ? verdicts[~to] : (size_t)to;

    assert(target > from && target - from - 1 <= JUMP_MAX);
    return (unsigned char)(target - from - 1);
}

static void seccomp_filter_put_all(struct seccomp_program *p, const struct span *spans, size_t n)
{
    size_t first = p->n, end, verdicts[VERDICTS_MAX] = {0};

    seccomp_filter_put_tree(p, spans, n);
    end = p->n;
    for (size_t i = 0; i < p->n_verdicts; i++) {
        verdicts[i] = p->n;
        seccomp_filter_put_verdict(p, p->verdicts[i]);
    }
    for (size_t i = first; i < end; i++) {
        p->f[i].jt = seccomp_filter_way(verdicts, i, p->to[i].yes);
        p->f[i].jf = seccomp_filter_way(verdicts, i, p->to[i].no);
    }
}

struct sock_filter *seccomp_filter_compile(enum seccomp_variant variant, size_t *ret_n)
{
    _cleanup_free_ struct seccomp_program *p = xcalloc(1, sizeof(*p));
    struct span spans[SECCOMP_FILTER_MAX];
    size_t n = seccomp_filter_make_spans(variant, spans);

    seccomp_filter_put(p, LOAD(arch));
    seccomp_filter_put(p, JUMP(BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0));
    seccomp_filter_put(p, KILL);
    seccomp_filter_put(p, LOAD(nr));
#ifdef FILTER_NR_END
    seccomp_filter_put(p, JUMP(BPF_JMP | BPF_JGE | BPF_K, FILTER_NR_END, 0, 1));
    seccomp_filter_put(p, KILL);
#endif
    seccomp_filter_put_all(p, spans, n);
    *ret_n = p->n;
    return xmemdup(p->f, p->n * sizeof(p->f[0]));
}

int seccomp_filter_possible(struct err *err)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;

    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
        return 0;
    err_sys(err, errno, "check for seccomp filters");
    return err_hint(err,
                    "Use a kernel with CONFIG_SECCOMP_FILTER; ripcord runs no command without it.");
}

int seccomp_filter_install(const void *filter, size_t bytes, struct err *err)
{
    const struct sock_fprog prog = {.len = (unsigned short)(bytes / sizeof(struct sock_filter)),
                                    .filter = (struct sock_filter *)(uintptr_t)filter};

    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        return err_sys(err, errno, "install the system call filter");
    return 0;
}
