#include "os/overlay.h"

#include "base/buf.h"
#include "os/mount.h"

int overlay_mount(const struct overlay *o, int *ret, struct err *err)
{
    _cleanup_buf_ struct buf lower = BUF_INIT(4096), upper = BUF_INIT(4096), work = BUF_INIT(4096);
    const char *options[6];
    int n = 0;

    if (buf_appendf(&lower, "lowerdir=%s", o->lower) < 0 ||
        buf_appendf(&upper, "upperdir=%s", o->upper) < 0 ||
        buf_appendf(&work, "workdir=%s", o->work) < 0)
        return err_set(err, ERR_LIMIT, "overlay layer name is too long");
    options[n++] = buf_data(&lower);
    options[n++] = buf_data(&upper);
    options[n++] = buf_data(&work);
    options[n++] = "userxattr"; /* trusted.* is out of reach in a user namespace */
    if (o->throw_away)
        options[n++] = "volatile";
    options[n] = NULL;
    return mount_new("overlay", options, MOUNT_SAFE, ret, err);
}
