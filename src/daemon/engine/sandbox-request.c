#include "daemon/engine/sandbox-request.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "daemon/engine/exec-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { SANDBOX_ID_LEN = 16 };

void sandbox_request_copy(struct sandbox_request *dst, const struct sandbox_request *src)
{
    *dst = *src;
    sandbox_spec_copy(&dst->spec, &src->spec);
    dst->spec_text = src->spec_text ? xstrdup(src->spec_text) : NULL;
    dst->spec_label = src->spec_label ? xstrdup(src->spec_label) : NULL;
    dst->first = src->first ? exec_request_copy(src->first) : NULL;
}

void sandbox_request_done(struct sandbox_request *req)
{
    if (!req)
        return;
    sandbox_spec_done(&req->spec);
    free(req->spec_text);
    free(req->spec_label);
    exec_request_done(req->first);
    free(req->first);
    *req = (struct sandbox_request){0};
}

bool sandbox_id_is_valid(const char *id)
{
    return strlen(id) == SANDBOX_ID_LEN && strspn(id, "0123456789abcdef") == SANDBOX_ID_LEN;
}

int sandbox_ids_add(int dirfd, char ***ids, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int saved = errno;

        fd_close(fd);
        return err_sys(err, saved, "read a folder of sandboxes");
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (sandbox_id_is_valid(e->d_name) && !strv_contains(*ids, e->d_name))
            strv_add(ids, e->d_name);
    return 0;
}
