#include "daemon/core/doctor/features.h"

#include "daemon/engine/engine-ops.h"
#include "lib/base/macro.h"

const struct doctor_feature doctor_plain_start = {
    "start", DOCTOR_FEATURE_RUN, "{}", 0, "a sandbox started and ran 'true'", DOCTOR_FAIL, false};

/* The values are small, so that they fit below the limits of a container. */
/* clang-format off */
const struct doctor_feature doctor_features[] = {
    {"kept sandbox",     DOCTOR_FEATURE_KEPT,  NULL,                                0, "can be created and removed",                      DOCTOR_FAIL, false},
    {"pause",            DOCTOR_FEATURE_PAUSE, NULL,                                0, "works",                                           DOCTOR_WARN, false},
    {"id ranges",        DOCTOR_FEATURE_RUN,   "{\"user\":\"0\"}",                     0, "a sandbox has many users: '--user 0' works",      DOCTOR_WARN, false},
    {"memory limit",     DOCTOR_FEATURE_RUN,   "{\"limits\":{\"memory\":67108864}}",   0, "is enforced",                                     DOCTOR_WARN, false},
    {"cpu limit",        DOCTOR_FEATURE_RUN,   "{\"limits\":{\"cpus\":1}}",            0, "is enforced",                                     DOCTOR_WARN, false},
    {"pids limit",       DOCTOR_FEATURE_RUN,   "{\"limits\":{\"pids\":64}}",           0, "is enforced",                                     DOCTOR_WARN, false},
    {"disk limit",       DOCTOR_FEATURE_RUN,   "{\"limits\":{\"disk\":33554432}}",     0, "is enforced",    DOCTOR_WARN, false},
    {"network packages", DOCTOR_FEATURE_RUN,   "{\"network\":\"packages\"}",           0, "works",                                           DOCTOR_WARN, false},
    {"network open",     DOCTOR_FEATURE_RUN,   "{\"network\":\"open\"}",               0, "works",                                           DOCTOR_WARN, false},
    {"strict isolation", DOCTOR_FEATURE_CAPABILITY, NULL,          ENGINE_CAP_STRICT, "works, for images other than 'host'",             DOCTOR_WARN, false},
    {"confined isolation", DOCTOR_FEATURE_RUN, "{\"isolation\":\"confined\"}",       0, "works: '--isolation confined' is weaker and needs no namespaces", DOCTOR_WARN, true},
    {"mount",            DOCTOR_FEATURE_MOUNT, NULL,                                0, "this folder can be mounted",                      DOCTOR_WARN, false},
};
/* clang-format on */

const size_t doctor_n_features = ARRAY_SIZE(doctor_features);

_Static_assert(ARRAY_SIZE(doctor_features) <= DOCTOR_FEATURES_MAX, "each has a place");
