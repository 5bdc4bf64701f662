/*
 * `guest copy-in` and `guest copy-out`: a tree as a tar stream in frames, by the rules of
 * lib/base/tree.h, as the sandbox's user, with blocking I/O. The input may be hostile, so this
 * process keeps only the system calls that the work needs (lib/os/confine.h).
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "guest/guest-conn.h"
#include "guest/modes.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/tree.h"
#include "lib/os/confine.h"
#include "lib/os/user.h"

struct guest_copy {
    struct guest_conn conn;
    struct guest_frame frame; /* in: the frame that is being read */
    uint32_t at;
    bool ended;
    struct tree_rules rules;
    struct buf gathered; /* out: headers and small files are gathered into large frames */
};

static ssize_t guest_copy_read_frames(void *arg, void *data, size_t len)
{
    struct guest_copy *c = arg;
    size_t n;

    while (c->at == c->frame.length && !c->ended) {
        if (guest_conn_wait(&c->conn, &c->frame, NULL) <= 0)
            return -ECONNRESET;
        if (c->frame.type != GUEST_STDIN && c->frame.type != GUEST_STDIN_EOF)
            return -EPROTO;
        c->ended = c->frame.type == GUEST_STDIN_EOF;
        c->at = 0;
    }
    n = MIN(len, (size_t)(c->frame.length - c->at));
    if (n)
        memcpy(data, c->frame.data + c->at, n);
    c->at += (uint32_t)n;
    return (ssize_t)n;
}

static int guest_copy_flush_gathered(struct guest_copy *c)
{
    if (c->gathered.len)
        guest_conn_queued(&c->conn, guest_put(&c->conn.out, GUEST_STDOUT, buf_data(&c->gathered),
                                              c->gathered.len));
    buf_clear(&c->gathered);
    guest_conn_flush(&c->conn);
    return c->conn.gone ? -EPIPE : 0;
}

static int guest_copy_write_frames(void *arg, const void *data, size_t len)
{
    struct guest_copy *c = arg;
    int r = 0;

    while (len && r == 0) {
        size_t n = MIN(len, c->gathered.max - c->gathered.len);

        if (buf_append(&c->gathered, data, n) < 0)
            return -ENOBUFS;
        data = (const char *)data + n;
        len -= n;
        if (c->gathered.len == c->gathered.max)
            r = guest_copy_flush_gathered(c);
    }
    return r;
}

static int guest_copy_take_owner(const char *who, struct tree_rules *ret, struct err *err)
{
    struct user owner;
    int r = user_resolve_owner(who, &owner, err);

    if (r < 0)
        return r;
    ret->has_owner = true;
    ret->uid = owner.uid;
    ret->gid = owner.gid;
    return 0;
}

static int guest_copy_take_word(const char *word, struct tree_rules *ret, struct err *err)
{
    uint64_t mode;
    int r;

    if (STREQ(word, "through")) {
        ret->through = true;
    } else if (STREQ(word, "parents")) {
        ret->parents = true;
    } else if (strncmp(word, "owner=", 6) == 0) {
        return guest_copy_take_owner(word + 6, ret, err);
    } else if (strncmp(word, "mode=", 5) == 0) {
        r = parse_mode(word + 5, &mode, err);
        if (r < 0)
            return r;
        ret->has_mode = true;
        ret->mode = (mode_t)mode;
    } else {
        return err_set(err, ERR_INVALID, "copy-in: unknown word '%.40s'", word);
    }
    return 0;
}

static int guest_copy_unpack(struct guest_copy *c, const char *path, struct tree_stats *stats,
                             struct err *err)
{
    return tree_from_tar(path, &c->rules, guest_copy_read_frames, c, stats, err);
}

static int guest_copy_pack(struct guest_copy *c, const char *path, struct tree_stats *stats,
                           struct err *err)
{
    int r = tree_to_tar(path, guest_copy_write_frames, c, stats, err);

    if (r < 0)
        return r;
    if (guest_copy_flush_gathered(c) < 0)
        return err_set(err, ERR_ENGINE, "the relay no longer listens");
    return 0;
}

static int guest_copy_prepare(struct guest_copy *c, char **argv, struct err *err)
{
    int r = 0;

    if (!argv[0] || argv[0][0] != '/')
        return err_set(err, ERR_INVALID, "path '%.80s' is not absolute", argv[0] ? argv[0] : "");
    for (char **word = argv + 1; *word && r >= 0; word++)
        r = guest_copy_take_word(*word, &c->rules, err);
    if (r < 0)
        return r;
    r = guest_check_user(err);
    return r < 0 ? r : confine_helper(err);
}

static int guest_copy_run(char **argv, int (*work)(struct guest_copy *, const char *,
                                                   struct tree_stats *, struct err *))
{
    struct guest_copy c = {.conn = GUEST_CONN_INIT, .gathered = BUF_INIT(GUEST_PAYLOAD_MAX)};
    _cleanup_err_ struct err err = ERR_INIT;
    struct tree_stats stats = {0};
    struct guest_done done;
    int r;

    guest_conn_queued(&c.conn, guest_put_hello(&c.conn.out, (uint32_t)getpid()));
    guest_conn_flush(&c.conn);
    r = guest_copy_prepare(&c, argv, &err);
    if (r >= 0)
        r = work(&c, argv[0], &stats, &err);
    done = (struct guest_done){stats.entries, stats.bytes, stats.skipped};
    guest_conn_queued(&c.conn, r < 0 ? guest_put_failed(&c.conn.out, &err)
                                     : guest_put_done(&c.conn.out, &done));
    guest_conn_flush(&c.conn);
    buf_done(&c.gathered);
    guest_conn_done(&c.conn);
    return 0;
}

int guest_copy_in(char **argv, struct err *err _unused_)
{
    return guest_copy_run(argv, guest_copy_unpack);
}

int guest_copy_out(char **argv, struct err *err _unused_)
{
    return guest_copy_run(argv, guest_copy_pack);
}
