#include "daemon/engine/docker/guest-program.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { GUEST_MAX = 16 << 20, NOTE_MAX = 4096 };
#define NOTE "guest"

static int guest_program_missing(struct err *err)
{
    return err_hint(err,
                    "Install ripcord again: ripcord-guest must be in the same folder as ripcordd.");
}

static char *guest_program_path(const struct docker_engine *d)
{
    return xasprintf("%s/ripcord-guest", d->libexec_dir);
}

/* The container's id belongs to it: a kept container of an older spec may come back. */
static int guest_program_note(const struct docker_engine *d, const char *container, char **ret,
                              struct err *err)
{
    _cleanup_free_ char *program = guest_program_path(d);
    struct stat st;

    if (stat(program, &st) < 0) {
        err_sys(err, errno, "read '%s'", program);
        return guest_program_missing(err);
    }
    *ret = xasprintf("%s %lld %lld.%09ld\n", container, (long long)st.st_size,
                     (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    return 0;
}

/* p NULL: only the program. */
static int guest_program_archive(const struct docker_engine *d, const struct body_parts *p,
                                 bool readable, struct buf *ret, struct err *err)
{
    _cleanup_free_ char *path = guest_program_path(d), *text = NULL;
    struct body_program guest = {.readable = readable};
    int r = file_read(AT_FDCWD, path, GUEST_MAX, &text, &guest.len, err);

    if (r < 0)
        return guest_program_missing(err);
    guest.data = text;
    return p ? body_archive(p, &guest, ret, err) : body_guest(&guest, ret, err);
}

static int guest_program_copy(struct docker_engine *d, const struct sandbox_request *req,
                              const struct body_parts *p, const char *container,
                              const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *path = docker_path("/containers/%s/archive?path=/", container);
    _cleanup_free_ char *file = xasprintf("%s/" NOTE, req->id), *note = NULL;
    _cleanup_buf_ struct buf tar = BUF_INIT(GUEST_MAX + MIB(1));
    struct deadline one = docker_by(d, by);
    struct docker_source source;
    bool readable;
    int r;

    r = guest_program_note(d, container, &note, err);
    if (r < 0)
        return r;
    r = docker_needs_readable_programs(d, req->spec.runtime, by, &readable, err);
    if (r < 0)
        return r;
    r = guest_program_archive(d, p, readable, &tar, err);
    if (r < 0)
        return r;
    source = (struct docker_source){.data = buf_data(&tar), .len = tar.len, .fd = -1};
    r = docker_upload(docker_client(d), "PUT", path, &source, &one, NULL, err);
    if (r < 0)
        return err_wrap(err, "copy ripcord-guest into the container");
    r = dir_make_all(d->execs, req->id, 0700, err); /* it is gone if our state was lost */
    if (r < 0)
        return r;
    return file_replace(d->execs, file, note, strlen(note), 0600, false, err);
}

int guest_program_install(struct docker_engine *d, const struct body_parts *p,
                          const char *container, const struct deadline *by, struct err *err)
{
    return guest_program_copy(d, p->req, p, container, by, err);
}

int guest_program_renew(struct docker_engine *d, const struct sandbox_request *req,
                        const char *container, const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *file = xasprintf("%s/" NOTE, req->id), *note = NULL, *have = NULL;
    int r = guest_program_note(d, container, &note, err);

    if (r < 0)
        return r;
    if (file_read(d->execs, file, NOTE_MAX, &have, NULL, NULL) >= 0 && STREQ(have, note))
        return 0;
    return guest_program_copy(d, req, NULL, container, by, err);
}
