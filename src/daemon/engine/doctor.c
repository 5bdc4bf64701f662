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
