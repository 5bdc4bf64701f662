#include "image/archive/confined-ids.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

int confined_ids_parse(const char *text, struct confined_ids *ret, struct err *err)
{
    _cleanup_free_ char *copy = xstrdup(text);
    char *uid = strchr(copy, ':'), *gid = uid ? strchr(uid + 1, ':') : NULL;
    const uint32_t most = UINT32_MAX - SUBMAP_COUNT;
    int r;

    if (STREQ(text, "own") || STREQ(text, "range")) {
        ret->kind = STREQ(text, "own") ? CONFINED_OWN : CONFINED_RANGE;
        return 0;
    }
    if (strncmp(text, "sub:", 4) != 0 || !gid)
        return err_set(err, ERR_INVALID,
                       "invalid id mapping '%s'; expected own, range or sub:UID:GID", text);
    *gid = '\0';
    ret->kind = CONFINED_SUB;
    r = parse_u32(uid + 1, 1, most, &ret->sub.uid, err);
    if (r < 0)
        return r;
    return parse_u32(gid + 1, 1, most, &ret->sub.gid, err);
}
