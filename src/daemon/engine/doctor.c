#include "daemon/engine/doctor.h"

#include <stdarg.h>
#include <stdlib.h>

#include "lib/base/xalloc.h"

const char *doctor_status_name(enum doctor_status status)
{
    static const char *const names[] = {"ok", "warn", "fail"};

    return names[status];
}

void doctor_report_done(struct doctor_report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->lines[i].detail);
        free(r->lines[i].fix);
    }
    free(r->lines);
    *r = (struct doctor_report)DOCTOR_REPORT_INIT;
}

void doctor_say(struct doctor_report *r, const char *name, enum doctor_status status,
                const char *fix, const char *fmt, ...)
{
    va_list ap;

    r->lines = xreallocarray(r->lines, r->n + 1, sizeof(*r->lines));
    va_start(ap, fmt);
    r->lines[r->n++] = (struct doctor_line){
        .name = name,
        .status = status,
        .detail = xvasprintf(fmt, ap),
        .fix = fix && status != DOCTOR_OK ? xstrdup(fix) : NULL,
    };
    va_end(ap);
}

json_t *doctor_line_to_json(const char *name, enum doctor_status status, const char *detail,
                            const char *fix)
{
    json_t *text = json_string(detail);

    return json_pack("{s:s, s:s, s:o, s:s?}", "name", name, "status", doctor_status_name(status),
                     "detail", text ? text : json_string("(not valid UTF-8)"), "fix",
                     status == DOCTOR_OK ? NULL : fix);
}

json_t *doctor_report_to_json(const struct doctor_report *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n; i++)
        json_array_append_new(list, doctor_line_to_json(r->lines[i].name, r->lines[i].status,
                                                        r->lines[i].detail, r->lines[i].fix));
    return list;
}
