/*
 * Makes the row of a sandbox that only its engine knows. Name, hash and spec come from its objects,
 * its execs from their folders. Only the store had the command lines, so rebuilt execs have none;
 * their output and their ends are unchanged.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/core/exec/end-record-json.h"
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/exec/output-retention.h"
#include "daemon/core/reconcile/reconcile-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

/* ---- execs ---- */

struct rebuilt_exec {
    char id[EXEC_ID_LEN + 1];
    uint64_t at; /* wall clock of its start: the time of its folder */
};

static bool rebuild_sandbox_is_exec_id(const char *name)
{
    return strlen(name) == EXEC_ID_LEN && strspn(name, "0123456789abcdef") == EXEC_ID_LEN;
}

static int rebuild_sandbox_by_time(const void *a, const void *b)
{
    const struct rebuilt_exec *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

static size_t rebuild_sandbox_find_execs(const char *path, struct rebuilt_exec **ret)
{
    _cleanup_closedir_ DIR *d = opendir(path);
    struct rebuilt_exec *v = NULL;
    size_t n = 0;

    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat st;

        if (!rebuild_sandbox_is_exec_id(e->d_name) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (n % 64 == 0)
            v = xreallocarray(v, n + 64, sizeof(*v));
        snprintf(v[n].id, sizeof(v[n].id), "%s", e->d_name);
        v[n++].at = (uint64_t)st.st_mtim.tv_sec * USEC_PER_SEC;
    }
    if (n)
        qsort(v, n, sizeof(*v), rebuild_sandbox_by_time);
    *ret = v;
    return n;
}

/* An exec without an end is open: recovery asks its supervisor. */
static int rebuild_sandbox_add_exec(struct sandbox *sb, const struct rebuilt_exec *f,
                                    struct err *err)
{
    struct end_record rec = {0};
    bool ended = exec_read_end(sb->engine->exec_root, sb->id, f->id, &rec, NULL) >= 0;
    const struct store_exec row = {
        .id = f->id,
        .sandbox_id = sb->id,
        .seq = sb->next_seq++,
        .argv = "[]",
        .options = "{}",
        .state = "running",
        .started_at = ended ? rec.started_wall : f->at,
    };
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *end = NULL;
    int r = store_exec_add(sb->m->store, &row, err);

    if (r < 0 || !ended)
        return r;
    end = end_record_to_json(&rec);
    text = json_to_text(end, false);
    return store_exec_end(sb->m->store, f->id, "ended", rec.ended_wall, text,
                          output_retention_record_bytes(&rec), err);
}

static int rebuild_sandbox_add_execs(struct sandbox *sb, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", sb->engine->exec_root, sb->id);
    _cleanup_free_ struct rebuilt_exec *found = NULL;
    size_t n = rebuild_sandbox_find_execs(path, &found);

    for (size_t i = 0; i < n; i++) {
        int r = rebuild_sandbox_add_exec(sb, &found[i], err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- the sandbox ---- */

/* A sandbox of an earlier version has no stored spec. It gets the defaults and is re-created at
 * its next start; its home stays. */
static int rebuild_sandbox_take_spec(struct sandbox *sb, const struct recon_item *item,
                                     struct err *err)
{
    int r;

    if (!item->spec) {
        sandbox_spec_copy(&sb->spec, &sb->m->config.defaults);
        sb->spec.image = xstrdup(sb->engine->ops->default_image);
        return 0;
    }
    memcpy(sb->hash, item->hash, sizeof(sb->hash));
    r = spec_from_text(item->spec, &sb->spec, err);
    if (r < 0)
        return r;
    spec_match_hash(&sb->spec, sb->engine->ops->name, sb->hash);
    return 0;
}

static int rebuild_sandbox_fill(struct sandbox *sb, const struct recon_item *item, struct err *err)
{
    int r;

    memcpy(sb->id, item->id, SANDBOX_ID_LEN); /* 16 hex digits: the engine has checked it */
    sb->engine = item->engine;
    sb->created_at = time_wall();
    r = rebuild_sandbox_take_spec(sb, item, err);
    if (r < 0)
        return r;
    r = sandbox_set_state(sb, SANDBOX_STOPPED, item->reason, err);
    return r < 0 ? r : rebuild_sandbox_add_execs(sb, err);
}

int rebuild_sandbox(struct manager *m, const struct recon_item *item, struct sandbox **ret,
                    struct err *err)
{
    struct sandbox *sb;
    int r = parse_name("sandbox name", item->name, err);

    if (r < 0)
        return r;
    if (map_get(&m->sandboxes, item->name)) {
        err_set(err, ERR_INVALID, "the name '%s' belongs to another sandbox", item->name);
        return err_hint(err, "Remove the other sandbox first: 'ripcord rm %s'.", item->name);
    }
    sb = sandbox_new(m, item->name);
    r = rebuild_sandbox_fill(sb, item, err);
    if (r < 0) {
        if (sb->stored)
            store_sandbox_delete(m->store, sb->id, NULL);
        sandbox_free(sb);
        return r;
    }
    output_retention_load(sb);
    *ret = sb;
    return 0;
}
