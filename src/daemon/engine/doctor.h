/*
 * The report of `ripcord doctor`: lines with a status, a finding and, where that is not enough,
 * what to do. core/doctor starts sandboxes for it; each engine adds lines of its own.
 */
#pragma once

#include <stddef.h>

#include "lib/base/json.h"
#include "lib/base/macro.h"

enum doctor_status { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_line {
    const char *name;
    enum doctor_status status;
    char *detail; /* owned */
    char *fix;    /* owned; a full sentence, or NULL */
};

struct doctor_report {
    struct doctor_line *lines; /* owned */
    size_t n;
};

#define DOCTOR_REPORT_INIT                                                                         \
    {                                                                                              \
        0                                                                                          \
    }

/* name: static. fix: an instruction for lines that are not OK, or NULL. fmt: the finding. */
void doctor_say(struct doctor_report *r, const char *name, enum doctor_status status,
                const char *fix, const char *fmt, ...) _printf_(5, 6);
void doctor_report_done(struct doctor_report *r);

const char *doctor_status_name(enum doctor_status status); /* "ok", "warn", "fail" */

/* {"name","status","detail","fix"}; fix NULL: null. New reference. */
json_t *doctor_line_to_json(const char *name, enum doctor_status status, const char *detail,
                            const char *fix);
json_t *doctor_report_to_json(const struct doctor_report *r); /* an array of them */
