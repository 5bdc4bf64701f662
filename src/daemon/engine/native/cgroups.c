#include "daemon/engine/native/cgroups.h"

#include <fcntl.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup.h"

#define PLACES_FILE "cgroups"

enum { PLACES_MAX = 64, PLACES_TEXT_MAX = 256 << 10 };

/* Places that still exist. The file is ours, and a path that leads out of the tree would find no
 * folder with our root's id. */
static void native_cgroups_read(struct native_cgroups *c, int run)
{
    _cleanup_free_ char *text = NULL;

    if (file_read(run, PLACES_FILE, PLACES_TEXT_MAX, &text, NULL, NULL) < 0)
        return;
    for (char *p = text, *line; (line = strsep(&p, "\n"));)
        if (*line && *line != '/' && strv_len(c->parents) < PLACES_MAX &&
            !strv_contains(c->parents, line) && cgroup_parent_exists(line))
            strv_add(&c->parents, line);
}

static int native_cgroups_write(const struct native_cgroups *c, int run, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(PLACES_TEXT_MAX);

    for (char **p = c->parents; p && *p; p++)
        if (buf_appendf(&b, "%s\n", *p) < 0)
            return err_set(err, ERR_LIMIT, "the list of cgroups is too long");
    return file_replace(run, PLACES_FILE, buf_data(&b), b.len, 0600, false, err);
}

int native_cgroups_open(struct native_cgroups *c, const char *run_dir, const char *root_id,
                        struct err *err)
{
    _cleanup_close_ int run = -1;
    int r = dir_open(AT_FDCWD, run_dir, &run, err);

    if (r < 0)
        return r;
    c->root_id = xstrdup(root_id);
    cgroup_place_take(&c->place);
    if (c->place.why)
        log_info("native: %s", c->place.why);
    if (c->place.parent)
        strv_add(&c->parents, c->place.parent);
    native_cgroups_read(c, run);
    return native_cgroups_write(c, run, err);
}

void native_cgroups_close(struct native_cgroups *c)
{
    for (char **p = c->parents; p && *p; p++)
        cgroup_remove_root(*p, c->root_id);
    strv_free(c->parents);
    cgroup_place_done(&c->place);
    free(c->root_id);
    *c = (struct native_cgroups)NATIVE_CGROUPS_INIT;
}

int native_cgroups_sweep(const struct native_cgroups *c, const char *id, struct err *err)
{
    for (char **p = c->parents; p && *p; p++) {
        int r = cgroup_sweep(*p, c->root_id, id, err);

        if (r < 0)
            return r;
    }
    return 0;
}

bool native_cgroups_are_rest(const struct native_cgroups *c, const char *id)
{
    for (char **p = c->parents; p && *p; p++)
        if (cgroup_is_rest(*p, c->root_id, id))
            return true;
    return false;
}

int native_cgroups_list(const struct native_cgroups *c, char ***ret, struct err *err)
{
    for (char **p = c->parents; p && *p; p++) {
        _cleanup_strv_ char **ids = NULL;
        int r = cgroup_list(*p, c->root_id, &ids, err);

        if (r < 0)
            return r;
        for (char **id = ids; id && *id; id++)
            if (!strv_contains(*ret, *id))
                strv_add(ret, *id);
    }
    return 0;
}
