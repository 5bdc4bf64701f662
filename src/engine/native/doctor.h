/*
 * `ripcord doctor`: what this machine can do for the native engine and what other engines are
 * there. Each check says what it found and, where that is not enough, what to do. Things are tried
 * for real, in child processes, where looking does not tell.
 *
 * For `ripcordd --doctor` only: it clones namespaces, so the process must have no second thread.
 */
#pragma once

#include <stddef.h>

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

/* state_dir: where sandboxes will lie (its file system is what is tried); made when missing. */
void native_doctor(const char *state_dir, struct doctor_report *ret);
void doctor_report_done(struct doctor_report *r);

const char *doctor_status_name(enum doctor_status status); /* "ok", "warn", "fail" */
