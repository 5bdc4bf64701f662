#include "daemon/engine/docker/doctor.h"

#include <stdlib.h>

#include "daemon/engine/docker/backend.h"
#include "dockerapi/docker.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

#define DOCTOR_TIMEOUT (5 * USEC_PER_SEC)

static const char *docker_doctor_env_get(const char *name)
{
    return getenv(name);
}

static void docker_doctor_check_limits(const struct docker *d, struct doctor_report *ret)
{
    static const char *const keys[] = {"MemoryLimit", "CpuCfsQuota", "PidsLimit"};
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_strv_ char **missing = NULL;
    _cleanup_free_ char *list = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = deadline_in(DOCTOR_TIMEOUT);

    if (docker_call(d, "GET", "/info", NULL, &by, &reply, &err) < 0) {
        doctor_say(ret, "docker limits", DOCTOR_WARN, "Read the engine's log.", "%s", err.msg);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (!json_is_true(json_object_get(reply.json, keys[i])))
            strv_add(&missing, keys[i]);
    list = missing ? strv_join(missing, ", ") : NULL;
    if (list)
        doctor_say(ret, "docker limits", DOCTOR_WARN,
                   "Enable the cgroup controllers memory, cpu and pids for the engine.",
                   "the engine cannot enforce %s", list);
    else
        doctor_say(ret, "docker limits", DOCTOR_OK, NULL, "memory, processors and processes");
}

static void docker_doctor_check_image(const struct docker *d, const char *image,
                                      struct doctor_report *ret)
{
    _cleanup_free_ char *path = docker_path("/images/%s/json", image);
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = deadline_in(DOCTOR_TIMEOUT);

    if (docker_call(d, "GET", path, NULL, &by, NULL, &err) >= 0)
        doctor_say(ret, "docker image", DOCTOR_OK, NULL, "'%s' exists", image);
    else
        doctor_say(ret, "docker image", DOCTOR_WARN,
                   "Build it with './dev image' in the ripcord sources, or set 'docker.image' in "
                   "ripcord.yaml to another image.",
                   "%s", err.msg);
}

void docker_doctor(struct engine *e, bool wanted, struct doctor_report *ret)
{
    const struct docker_engine *config = docker_of(e);
    _cleanup_endpoint_ struct docker_endpoint endpoint = {0};
    _cleanup_(docker_closep) struct docker *d = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = deadline_in(DOCTOR_TIMEOUT);

    if (docker_endpoint_find(config->host, docker_doctor_env_get, &endpoint, &err) < 0 ||
        docker_open(&endpoint, &by, &d, &err) < 0) {
        if (wanted || *config->host)
            doctor_say(ret, "docker engine", DOCTOR_FAIL,
                       err.hint ? err.hint : "Read docs/engines.md.", "%s", err.msg);
        else
            doctor_say(ret, "docker engine", DOCTOR_OK, NULL,
                       "not found (the native engine does not need it)");
        return;
    }
    doctor_say(ret, "docker engine", DOCTOR_OK, NULL, "%s %s, API 1.%u, at %s",
               docker_flavour_name(d->flavour), d->version, d->api, d->where);
    docker_doctor_check_limits(d, ret);
    docker_doctor_check_image(d, config->image, ret);
}
