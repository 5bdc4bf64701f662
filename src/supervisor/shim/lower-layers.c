/*
 * /home/agent is an overlay of its own. Its lower layers are the folder home/agent of each of the
 * image's layers. Overlayfs would respect whiteouts and opaque folders on the path to it; here we
 * must do that ourselves.
 */
#include "supervisor/shim/lower-layers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/whiteout.h"

#define HOME "home/agent"

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

enum { SHORT_MAX = 4, LETTERS = sizeof(letters) - 1 };

_Static_assert(PLAN_LAYERS_MAX < 2 * LETTERS, "names of one and two letters are enough");
_Static_assert(2 * LETTERS + 3 * (PLAN_LAYERS_MAX - LETTERS) + 5 <= LOWER_MAX,
               "all layers and the caches' base fit into one option");

static void lower_layers_short_name(size_t i, char ret[static SHORT_MAX])
{
    if (i < LETTERS)
        snprintf(ret, SHORT_MAX, "%c", letters[i]);
    else
        snprintf(ret, SHORT_MAX, "_%c", letters[i - LETTERS]);
}

static int lower_layers_link_one(int scaffold, const char *target, const char *name,
                                 struct err *err)
{
    if (symlinkat(target, scaffold, name) < 0)
        return err_sys(err, errno, "create a link to layer '%s'", target);
    return 0;
}

int lower_link(const struct plan *plan, int scaffold, struct err *err)
{
    for (size_t i = 0; i < plan->n_layers; i++) {
        char name[SHORT_MAX], target[128];
        int r;

        lower_layers_short_name(i, name);
        snprintf(target, sizeof(target), "lower/%s", plan->layers[i]);
        r = lower_layers_link_one(scaffold, target, name, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int lower_layers_add(struct buf *b, const char *name, struct err *err)
{
    if ((b->len && buf_append_c(b, ':') < 0) || buf_append_str(b, name) < 0)
        return err_set(err, ERR_LIMIT, "too many layers for one mount");
    return 0;
}

/* The caches' base is one more layer, so that /cache needs no mount of its own: that mount would
 * take a tenth of the start time. */
int lower_root(const struct plan *plan, struct buf *ret, struct err *err)
{
    int r;

    if (plan->cache_base) {
        r = lower_layers_add(ret, "base", err);
        if (r < 0)
            return r;
    }
    if (!plan->n_layers)
        return lower_layers_add(ret, "lower", err);
    for (size_t i = 0; i < plan->n_layers; i++) {
        char name[SHORT_MAX];

        lower_layers_short_name(i, name);
        r = lower_layers_add(ret, name, err);
        if (r < 0)
            return r;
    }
    return 0;
}

void lower_below(const struct plan *plan, const char *name, char ret[static LOWER_BELOW_MAX])
{
    char skeleton[SHORT_MAX] = "";

    if (plan->n_layers)
        lower_layers_short_name(plan->n_layers - 1, skeleton);
    snprintf(ret, LOWER_BELOW_MAX, "%s/%s", plan->n_layers ? skeleton : "lower", name);
}

/* ---- /home/agent ---- */

enum seen { SEEN_NOTHING, SEEN_FOLDER, SEEN_OPAQUE, SEEN_END };

/* What the layer has at `path`. */
static enum seen lower_layers_look(int layer, const char *path)
{
    _cleanup_close_ int fd = -1;
    struct stat st;

    if (fstatat(layer, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return SEEN_NOTHING;
    if (!S_ISDIR(st.st_mode))
        return SEEN_END; /* a whiteout or a file: it hides the lower layers */
    fd = openat(layer, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && whiteout_is_opaque(fd) ? SEEN_OPAQUE : SEEN_FOLDER;
}

/* True if lower layers are visible below this one. *has: the layer has the folder. */
static bool lower_layers_look_home(int layer, bool *has)
{
    enum seen parent = lower_layers_look(layer, "home"), home = SEEN_NOTHING;

    *has = false;
    if (parent == SEEN_NOTHING || parent == SEEN_END)
        return parent == SEEN_NOTHING;
    home = lower_layers_look(layer, HOME);
    *has = home == SEEN_FOLDER || home == SEEN_OPAQUE;
    return parent != SEEN_OPAQUE && home != SEEN_OPAQUE && home != SEEN_END;
}

static int lower_layers_add_home(int scaffold, const char *layer, struct buf *ret, struct err *err)
{
    char name[SHORT_MAX + 1], target[SHORT_MAX + sizeof(HOME)];
    int r;

    snprintf(name, sizeof(name), ",%s", layer);
    snprintf(target, sizeof(target), "%s/" HOME, layer);
    r = lower_layers_link_one(scaffold, target, name, err);
    return r < 0 ? r : lower_layers_add(ret, name, err);
}

static int lower_layers_add_homes(const struct plan *plan, int scaffold, struct buf *ret,
                                  struct err *err)
{
    bool more = true;

    for (size_t i = 0; more && i < plan->n_layers; i++) {
        char name[SHORT_MAX];
        _cleanup_close_ int layer = -1;
        bool has;
        int r;

        lower_layers_short_name(i, name);
        layer = openat(scaffold, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (layer < 0)
            return err_sys(err, errno, "open layer '%s'", plan->layers[i]);
        more = lower_layers_look_home(layer, &has);
        r = has ? lower_layers_add_home(scaffold, name, ret, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

int lower_home(const struct plan *plan, int scaffold, struct buf *ret, struct err *err)
{
    struct stat st;
    int r = 0;

    if (plan->n_layers)
        r = lower_layers_add_homes(plan, scaffold, ret, err);
    else if (fstatat(scaffold, "lower/" HOME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        r = lower_layers_add(ret, "lower/" HOME, err);
    if (r < 0)
        return r;
    return ret->len ? 0 : lower_layers_add(ret, "none", err);
}
