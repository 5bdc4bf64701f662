#include "daemon/engine/engine-check.h"

#include "daemon/engine/caches.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/sandbox-spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"

static const struct {
    uint32_t limit, cap;
    const char *name;
} limit_caps[] = {
    {LIMIT_MEMORY, ENGINE_CAP_MEMORY_LIMIT, "memory"},
    {LIMIT_CPUS, ENGINE_CAP_CPU_LIMIT, "cpus"},
    {LIMIT_PIDS, ENGINE_CAP_PIDS_LIMIT, "pids"},
    {LIMIT_DISK, ENGINE_CAP_DISK_LIMIT, "disk"},
};

uint32_t engine_check_unenforced(const struct engine *e, const struct sandbox_spec *spec)
{
    uint32_t set = 0, out = 0;

    set |= spec->memory ? LIMIT_MEMORY : 0;
    set |= spec->cpu_milli ? LIMIT_CPUS : 0;
    set |= spec->pids ? LIMIT_PIDS : 0;
    set |= spec->disk ? LIMIT_DISK : 0;
    if (sandbox_spec_is_confined(spec))
        return set;
    for (size_t i = 0; i < ARRAY_SIZE(limit_caps); i++)
        if (!(e->caps & limit_caps[i].cap))
            out |= set & limit_caps[i].limit;
    return out;
}

static int engine_check_caches(const struct engine *e, const struct sandbox_spec *spec,
                               struct err *err)
{
    for (size_t i = 0; i < spec->n_caches; i++) {
        const struct spec_cache *c = &spec->caches[i];
        _cleanup_free_ char *modes = NULL;

        if (e->cache_modes & (1U << c->mode))
            continue;
        modes = cache_mode_list(e->cache_modes);
        err_set(err, ERR_UNSUPPORTED, "engine '%s' does not support mode '%s' for cache '%s'",
                e->ops->name, cache_mode_name(c->mode), c->tool);
        return err_hint(err, "Use one of these modes: %s.", modes);
    }
    return 0;
}

/* Completes a refusal: appends the backend's reason, and replaces the hint by the backend's. */
int engine_check_lack(const struct engine *e, uint32_t cap, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT, whole = ERR_INIT;

    if (!err)
        return -ERR_UNSUPPORTED;
    if (e->ops->lack)
        e->ops->lack(e, cap, &why);
    if (why.msg) {
        err_set(&whole, err->code, "%s: %s", err->msg, why.msg);
        err_hint(&whole, "%s", why.hint ? why.hint : err->hint);
        err_done(err);
        err_move(err, &whole);
    }
    return -(int)err->code;
}

static int engine_check_limits(const struct engine *e, const struct sandbox_spec *spec,
                               struct err *err)
{
    uint32_t missing = spec->asked & engine_check_unenforced(e, spec);

    for (size_t i = 0; i < ARRAY_SIZE(limit_caps); i++) {
        const char *name = limit_caps[i].name;

        if (!(missing & limit_caps[i].limit))
            continue;
        if (sandbox_spec_is_confined(spec)) {
            err_set(err, ERR_UNSUPPORTED, "isolation 'confined' cannot enforce a %s limit", name);
            return err_hint(err, "Leave the %s limit out: without namespaces there are no cgroups.",
                            name);
        }
        err_set(err, ERR_UNSUPPORTED, "engine '%s' cannot enforce a %s limit on this machine",
                e->ops->name, name);
        err_hint(err, "Leave the %s limit out.", name);
        return engine_check_lack(e, limit_caps[i].cap, err);
    }
    return 0;
}

static int engine_check_confined(const struct engine *e, const struct sandbox_spec *spec,
                                 struct err *err)
{
    if (!sandbox_spec_is_confined(spec) || e->caps & ENGINE_CAP_CONFINED)
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "engine '%s' does not support isolation 'confined' on this machine", e->ops->name);
    err_hint(err, "Use engine 'native'.");
    return engine_check_lack(e, ENGINE_CAP_CONFINED, err);
}

static int engine_check_abilities(const struct engine *e, const struct sandbox_spec *spec,
                                  struct err *err)
{
    int r = engine_check_confined(e, spec, err);

    if (r < 0)
        return r;
    r = engine_check_limits(e, spec, err);
    if (r < 0)
        return r;
    if (spec->network == SPEC_NETWORK_OPEN && !(e->caps & ENGINE_CAP_NET_OPEN)) {
        err_set(err, ERR_UNSUPPORTED, "engine '%s' cannot provide network 'open' on this machine",
                e->ops->name);
        err_hint(err, "Use network 'none' or 'packages'.");
        return engine_check_lack(e, ENGINE_CAP_NET_OPEN, err);
    }
    if (spec->runtime && !(e->caps & ENGINE_CAP_RUNTIME)) {
        err_set(err, ERR_UNSUPPORTED, "engine '%s' does not support runtimes", e->ops->name);
        return err_hint(err, "Leave 'runtime' out, or use engine 'docker'.");
    }
    if (spec->isolation == SPEC_ISOLATION_STRICT && !(e->caps & ENGINE_CAP_STRICT)) {
        err_set(err, ERR_UNSUPPORTED,
                "engine '%s' does not support isolation 'strict' on this machine", e->ops->name);
        err_hint(err, "Leave 'isolation' out.");
        return engine_check_lack(e, ENGINE_CAP_STRICT, err);
    }
    return engine_check_caches(e, spec, err);
}

int engine_check_spec(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    int r = engine_check_abilities(e, spec, err);

    return r < 0 || !e->ops->check ? r : e->ops->check(e, spec, err);
}

#define PROVIDED_USER "agent" /* as in daemon/core/sandbox/spec.c */

bool engine_check_needs_account(const struct sandbox_spec *spec)
{
    return !STREQ(spec->user, PROVIDED_USER) && !(*spec->user >= '0' && *spec->user <= '9');
}

int engine_check_no_account(const struct sandbox_spec *spec, struct err *err)
{
    err_set(err, ERR_INVALID, "user '%s' is not in the /etc/passwd of image '%s'", spec->user,
            spec->image);
    return err_hint(err, "Use a name of that file, or a number such as --user 1000.");
}
