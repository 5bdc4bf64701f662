#include "image/build/missing-files.h"

#include "image/build/content-stream.h"
#include "image/build/filter.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"

static int missing_files_add_source(int context, const char *source, const struct filter_want *want,
                                    json_t *set, struct err *err)
{
    _cleanup_(filter_freep) struct filter *filter = NULL;
    _cleanup_strv_ char **found = NULL;
    int r = filter_find(context, source, want, &found, &filter, err);

    if (r < 0)
        return r;
    for (char **f = found; f && *f; f++) {
        r = content_stream_left_out(context, *f, filter, set, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int missing_files_add_step(int context, const struct build_plan_step *s, json_t *set,
                                  struct err *err)
{
    const struct filter_want want = {.parents = s->parents, .exclude = s->exclude}, all = {0};
    int r;

    if (!build_is_from_elsewhere(&s->from))
        for (char **p = s->sources; p && *p; p++) {
            r = missing_files_add_source(context, *p, &want, set, err);
            if (r < 0)
                return r;
        }
    for (size_t i = 0; i < s->n_mounts; i++) {
        const struct build_mount *m = &s->mounts[i];

        if (m->m.type != MOUNT_BIND || build_is_from_elsewhere(&m->from))
            continue;
        r = missing_files_add_source(context, m->m.source ? m->m.source : "", &all, set, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int missing_files_check(const struct workspace *w, const struct build_stage *stage, size_t from,
                        struct daemon_conn *daemon_conn, struct err *err)
{
    _cleanup_json_ json_t *set = json_object();
    _cleanup_close_ int context = -1;
    json_t *digits, *value;
    const char *key;
    int r;

    if (!w->digest_only)
        return 0;
    r = dir_open(w->dir, "context", &context, err);
    if (r < 0)
        return r;
    for (size_t i = from; i < stage->n_steps; i++)
        /* An error in a later step is reported when that step is done. */
        (void)missing_files_add_step(context, &stage->steps[i], set, NULL);
    if (!json_object_size(set))
        return 0;
    digits = json_array();
    json_object_foreach (set, key, value)
        json_array_append_new(digits, json_string(key));
    daemon_conn_send_event(daemon_conn, json_pack("{s:o}", "need", digits));
    err_set(err, ERR_CONFLICT, "files of the context are missing (the context is digest-only)");
    return err_hint(err, "Send the context again with the files that the event `need` lists.");
}
