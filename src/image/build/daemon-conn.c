#include "image/build/daemon-conn.h"

#include "lib/base/cleanup.h"

void front_number(struct front *f, unsigned *step, json_t *doc)
{
    if (json_object_get(doc, "step"))
        *step = ++f->step;
    json_object_set_new(doc, "id", json_integer(*step));
}

void front_tell(struct front *f, json_t *event)
{
    unsigned step = f->step;

    front_number(f, &step, event);
    wire_send(&f->wire, event);
}

static int ask(struct front *f, const char *what, json_t *doc, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *answer = NULL;
    int r;

    wire_send(&f->wire, json_pack("{s:o, s:i}", what, doc, "id", (int)f->step));
    r = wire_next(&f->wire, &answer, err);
    if (r >= 0 && json_object_get(answer, "error"))
        r = json_to_err(answer, err);
    if (r >= 0 && ret)
        *ret = TAKE_PTR(answer);
    return r;
}

int front_run(struct front *f, json_t *run, struct err *err)
{
    return ask(f, "run", run, NULL, err);
}

int front_pull(struct front *f, json_t *pull, struct err *err)
{
    return ask(f, "pull", pull, NULL, err);
}

int front_fetch(struct front *f, json_t *fetch, json_t **ret, struct err *err)
{
    return ask(f, "fetch", fetch, ret, err);
}
