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

    for (char **f = found; r >= 0 && f && *f; f++)
        r = content_stream_left_out(context, *f, filter, set, err);
    return r;
}

static int missing_files_add_step(int context, const struct build_plan_step *s, json_t *set,
                                  struct err *err)
{
    const struct filter_want want = {.parents = s->parents, .exclude = s->exclude}, all = {0};
    int r = 0;

    if (!build_is_from_elsewhere(&s->from))
        for (char **p = s->sources; r >= 0 && p && *p; p++)
            r = missing_files_add_source(context, *p, &want, set, err);
    for (size_t i = 0; r >= 0 && i < s->n_mounts; i++) {
        const struct build_mount *m = &s->mounts[i];

        if (m->m.type == MOUNT_BIND && !build_is_from_elsewhere(&m->from))
            r = missing_files_add_source(context, m->m.source ? m->m.source : "", &all, set, err);
    }
    return r;
}

static json_t *missing_files_keys(json_t *set)
{
    json_t *list = json_array(), *value;
    const char *key;

    json_object_foreach (set, key, value)
        json_array_append_new(list, json_string(key));
    return list;
}

int missing_files_check(const struct workspace *w, const struct build_stage *stage, size_t from,
                        struct daemon_conn *daemon_conn, struct err *err)
{
    _cleanup_json_ json_t *set = json_object();
    _cleanup_close_ int context = -1;
    int r;

    if (!w->digest_only)
        return 0;
    r = dir_open(w->dir, "context", &context, err);
    /* What is wrong with one is told when it is done. */
    for (size_t i = from; r >= 0 && i < stage->n_steps; i++)
        (void)missing_files_add_step(context, &stage->steps[i], set, NULL);
    if (r < 0 || !json_object_size(set))
        return r;
    daemon_conn_send_event(daemon_conn, json_pack("{s:o}", "need", missing_files_keys(set)));
    err_set(err, ERR_CONFLICT, "files of the context were left out that have to be there");
    return err_hint(err,
                    "The event `need` lists them; the context is to be sent again with these.");
}
