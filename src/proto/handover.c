/*
 * See handover.h. The arrays of a command get a mapping of their own and not memory of malloc():
 * glibc would keep megabytes of that after a single large command, in each idle supervisor.
 */
#include "proto/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/base/command-size.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/supervisor.h"

enum {
    SEALS = F_SEAL_WRITE | F_SEAL_SHRINK, /* else the mapped bytes could change or vanish */
    FIELD_ROOM = sizeof(struct sup_field) + 8,
    SIZE_MAX_ALL = HANDOVER_INPUT_MAX + HANDOVER_SECRETS_SIZE +
                   (2 * HANDOVER_SECRETS_MAX + 1) * (FIELD_ROOM + 1) + SUP_COMMAND_MAX,
};

/* A SECRET_PLACE field: this struct and the NUL-terminated target. */
struct handover_place {
    uint32_t has_owner, has_mode, uid, gid, mode;
};

/* ---- making ---- */

static void handover_put_secret(struct sup_writer *w, const struct handover_secret *s)
{
    size_t name = strlen(s->name) + 1, len = name + s->len;
    char *value = xmalloc(len);

    memcpy(value, s->name, name);
    if (s->len)
        memcpy(value + name, s->value, s->len);
    sup_put_bytes(w, SUP_TAG_SECRET, value, len);
    explicit_bzero(value, len);
    free(value);
}

static bool handover_has_place(const struct handover_secret *s)
{
    return s->target || s->has_owner || s->has_mode;
}

static size_t handover_place_size(const struct handover_secret *s)
{
    return sizeof(struct handover_place) + strlen(s->target ? s->target : "") + 1;
}

static void handover_put_place(struct sup_writer *w, const struct handover_secret *s)
{
    const struct handover_place p = {s->has_owner, s->has_mode, s->uid, s->gid, s->mode};
    size_t len = handover_place_size(s);
    _cleanup_free_ char *value = xmalloc(len);

    memcpy(value, &p, sizeof(p));
    memcpy(value + sizeof(p), s->target ? s->target : "", len - sizeof(p));
    sup_put_bytes(w, SUP_TAG_SECRET_PLACE, value, len);
}

static int handover_check_secrets(const struct handover_secret *secrets, size_t n, size_t *ret_size,
                                  struct err *err)
{
    size_t size = 0;

    if (n > HANDOVER_SECRETS_MAX)
        return err_set(err, ERR_LIMIT, "too many secrets (%zu, at most %d are allowed)", n,
                       HANDOVER_SECRETS_MAX);
    for (size_t i = 0; i < n; i++) {
        size += strlen(secrets[i].name) + 1 + secrets[i].len;
        size += handover_has_place(&secrets[i]) ? handover_place_size(&secrets[i]) : 0;
        if (size > HANDOVER_SECRETS_SIZE)
            return err_set(err, ERR_LIMIT, "the secrets together exceed %d KiB",
                           HANDOVER_SECRETS_SIZE >> 10);
    }
    *ret_size = size + 2 * n * FIELD_ROOM;
    return 0;
}

static int handover_check_command(char *const *argv, char *const *env, size_t *ret_size,
                                  struct err *err)
{
    size_t size = command_size(argv) + command_size(env);

    if (size > COMMAND_MAX || command_oversized(argv) || command_oversized(env))
        return err_set(err, ERR_LIMIT,
                       "the command is too large (%zu bytes, at most %d in all and %d in one "
                       "argument or variable)",
                       size, COMMAND_MAX, COMMAND_STRING_MAX - 1);
    *ret_size = size + (strv_len(argv) + strv_len(env)) * (FIELD_ROOM - COMMAND_STRING_COST);
    return 0;
}

static int handover_check_parts(const struct handover_parts *p, size_t *ret_size, struct err *err)
{
    size_t secrets = 0, command = 0;
    int r;

    if (p->input_len > HANDOVER_INPUT_MAX)
        return err_set(err, ERR_LIMIT, "input is too large (%zu bytes, at most %d are allowed)",
                       p->input_len, HANDOVER_INPUT_MAX);
    r = handover_check_secrets(p->secrets, p->n_secrets, &secrets, err);
    if (r < 0)
        return r;
    r = handover_check_command(p->argv, p->env, &command, err);
    if (r < 0)
        return r;
    *ret_size = secrets + command + (p->input ? p->input_len + FIELD_ROOM : 0);
    return 0;
}

static void handover_put_strings(struct sup_writer *w, enum sup_tag tag, char *const *v)
{
    for (; v && *v; v++)
        sup_put_str(w, (uint16_t)tag, *v);
}

/* One allocation for all fields: growing the buffer would leave copies of the secrets in memory. */
int handover_make(const struct handover_parts *p, int *ret, struct err *err)
{
    struct sup_writer w = {.buf = BUF_INIT(SIZE_MAX_ALL)};
    size_t size = 0;
    int r;

    r = handover_check_parts(p, &size, err);
    if (r < 0)
        return r;
    if (!buf_reserve(&w.buf, size))
        return err_set(err, ERR_LIMIT, "input, secrets and command are too large together");
    if (p->input)
        sup_put_bytes(&w, SUP_TAG_INPUT, p->input, p->input_len);
    for (size_t i = 0; i < p->n_secrets; i++) {
        handover_put_secret(&w, &p->secrets[i]);
        if (handover_has_place(&p->secrets[i]))
            handover_put_place(&w, &p->secrets[i]);
    }
    handover_put_strings(&w, SUP_TAG_ARG, p->argv);
    handover_put_strings(&w, SUP_TAG_ENV, p->env);
    r = memfd_sealed("handover", buf_data(&w.buf), w.buf.len, ret, err);
    explicit_bzero(w.buf.mem, w.buf.cap);
    sup_writer_done(&w);
    return r;
}

/* ---- reading ---- */

static int handover_take_secret(struct handover *h, const struct sup_value *v, struct err *err)
{
    size_t name = strnlen(v->data, v->length);

    if (h->n_secrets == HANDOVER_SECRETS_MAX)
        return err_set(err, ERR_LIMIT, "handover: more than %d secrets", HANDOVER_SECRETS_MAX);
    if (name == v->length || parse_secret_name(v->data, NULL) < 0)
        return err_set(err, ERR_INVALID, "handover: invalid secret name");
    h->secrets[h->n_secrets++] = (struct handover_secret){
        .name = v->data, .value = v->data + name + 1, .len = v->length - name - 1};
    return 0;
}

static int handover_take_place(struct handover *h, const struct sup_value *v, struct err *err)
{
    struct handover_secret *s = h->n_secrets ? &h->secrets[h->n_secrets - 1] : NULL;
    const char *target = v->data + sizeof(struct handover_place);
    struct handover_place p;

    if (!s || handover_has_place(s) || v->length <= sizeof(p) ||
        strnlen(target, v->length - sizeof(p)) + sizeof(p) + 1 != v->length ||
        (*target && *target != '/'))
        return err_set(err, ERR_INVALID, "handover: invalid secret target");
    memcpy(&p, v->data, sizeof(p));
    if (p.mode > 0777)
        return err_set(err, ERR_INVALID, "handover: invalid secret mode %o", p.mode);
    s->target = *target ? target : NULL;
    s->has_owner = p.has_owner;
    s->has_mode = p.has_mode;
    s->uid = p.uid;
    s->gid = p.gid;
    s->mode = p.mode;
    return 0;
}

/* The first pass over the strings: checks and counts them. */
static int handover_count_string(struct handover *h, const struct sup_value *v, size_t *size,
                                 struct err *err)
{
    *size += v->length + COMMAND_STRING_COST;
    if (v->length >= COMMAND_STRING_MAX || *size > COMMAND_MAX)
        return err_set(err, ERR_LIMIT, "handover: the command is too large");
    if (v->tag == SUP_TAG_ENV && parse_env(v->data, NULL) < 0)
        return err_set(err, ERR_INVALID, "handover: '%.100s' is not NAME=VALUE", v->data);
    if (v->tag == SUP_TAG_ARG)
        h->n_argv++;
    else
        h->n_env++;
    return 0;
}

static int handover_take_fields(struct handover *h, struct err *err)
{
    struct sup_reader r = {.p = h->map, .end = (const char *)h->map + h->size};
    size_t strings = 0;
    struct sup_value v;
    int n;

    while ((n = sup_next(&r, &v, err)) > 0) {
        if (v.tag == SUP_TAG_INPUT && !h->input) {
            h->input = v.data;
            h->input_len = v.length;
        } else if (v.tag == SUP_TAG_SECRET) {
            n = handover_take_secret(h, &v, err);
        } else if (v.tag == SUP_TAG_SECRET_PLACE) {
            n = handover_take_place(h, &v, err);
        } else if (v.tag == SUP_TAG_ARG || v.tag == SUP_TAG_ENV) {
            n = handover_count_string(h, &v, &strings, err);
        } else {
            n = err_set(err, ERR_INVALID, "handover: unexpected field %u", v.tag);
        }
        if (n < 0)
            break;
    }
    return n;
}

static size_t handover_arrays_size(const struct handover *h)
{
    return (h->n_argv + h->n_env + 2) * sizeof(char *);
}

/* The second pass, over fields that are known to be valid. */
static int handover_fill_arrays(struct handover *h, struct err *err)
{
    struct sup_reader r = {.p = h->map, .end = (const char *)h->map + h->size};
    size_t args = 0, vars = 0;
    struct sup_value v;
    void *p;

    if (!h->n_argv && !h->n_env)
        return 0;
    p = mmap(NULL, handover_arrays_size(h), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
             0);
    if (p == MAP_FAILED)
        return err_sys(err, errno, "make room for the command");
    h->argv = p;
    h->env = h->argv + h->n_argv + 1;
    while (sup_next(&r, &v, NULL) > 0) {
        if (v.tag == SUP_TAG_ARG)
            h->argv[args++] = (char *)v.data;
        else if (v.tag == SUP_TAG_ENV)
            h->env[vars++] = (char *)v.data;
    }
    return 0;
}

int handover_read(int fd, struct handover *ret, struct err *err)
{
    struct handover h = {0};
    int seals = fcntl(fd, F_GET_SEALS), r;
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0)
        return err_set(err, ERR_INVALID, "handover: not a sealed memfd");
    if (st.st_size <= 0 || st.st_size > SIZE_MAX_ALL)
        return err_set(err, ERR_LIMIT, "handover: invalid size (%lld bytes)",
                       (long long)st.st_size);
    h.size = (size_t)st.st_size;
    h.map = mmap(NULL, h.size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (h.map == MAP_FAILED)
        return err_sys(err, errno, "map the handover");
    r = handover_take_fields(&h, err);
    if (r >= 0)
        r = handover_fill_arrays(&h, err);
    if (r < 0) {
        handover_done(&h);
        return r;
    }
    *ret = h;
    return 0;
}

void handover_done(struct handover *h)
{
    if (h->argv)
        munmap(h->argv, handover_arrays_size(h));
    if (h->map)
        munmap(h->map, h->size);
    *h = (struct handover){0};
}
