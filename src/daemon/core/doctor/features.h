/*
 * What the doctor tries, each with a sandbox of its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/engine/doctor.h"

enum doctor_feature_kind {
    DOCTOR_FEATURE_RUN,        /* a run with `spec` */
    DOCTOR_FEATURE_MOUNT,      /* the same with a mount of the user's folder */
    DOCTOR_FEATURE_KEPT,       /* a sandbox with a name, which is created and removed */
    DOCTOR_FEATURE_PAUSE,      /* the same, and paused and resumed between the two */
    DOCTOR_FEATURE_CAPABILITY, /* the engine's capability `cap` counts */
};

struct doctor_feature {
    const char *name; /* of the line */
    enum doctor_feature_kind kind;
    const char *spec; /* a patch of the default spec, as JSON */
    uint32_t cap;
    const char *ok;         /* what a success means */
    enum doctor_status bad; /* the status of a failure */
    bool always;            /* tried where the plain start fails, too */
};

enum { DOCTOR_FEATURES_MAX = 16 };

extern const struct doctor_feature doctor_plain_start;
extern const struct doctor_feature doctor_features[];
extern const size_t doctor_n_features;
