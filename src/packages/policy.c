#include "packages/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

static bool policy_pattern_ok(const char *s)
{
    size_t len = strlen(s);

    return len > 0 && len <= NAME_MAX_LEN &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@/._~*-") ==
               len;
}

int policy_add_deny(struct policy *p, const char *text, struct err *err)
{
    const char *colon = strchr(text, ':'), *name = colon ? colon + 1 : text;
    const char *version = strstr(name, "==");
    struct policy_deny d = {.any = !colon};
    _cleanup_free_ char *eco = NULL, *pattern = NULL;

    if (colon) {
        eco = xstrndup(text, (size_t)(colon - text));
        if (ecosystem_parse(eco, &d.eco, err) < 0)
            return err_wrap(err, "deny '%s'", text);
    }
    pattern = version ? xstrndup(name, (size_t)(version - name)) : xstrdup(name);
    if (!policy_pattern_ok(pattern) || (version && !name_version(version + 2)))
        return err_set(err, ERR_INVALID, "deny '%s': not NAME or NAME==VERSION", text);
    d.name = TAKE_PTR(pattern);
    d.version = version ? xstrdup(version + 2) : NULL;
    p->deny = xreallocarray(p->deny, p->n_deny + 1, sizeof(*p->deny));
    p->deny[p->n_deny++] = d;
    return 0;
}

void policy_seal(struct policy *p)
{
    struct buf b = BUF_INIT(MIB(4));
    int r = buf_appendf(&b, "%lld", (long long)p->min_age);

    for (size_t i = 0; i < p->n_deny && r >= 0; i++)
        r = buf_appendf(&b, " %d%d%s==%s", p->deny[i].any, p->deny[i].eco, p->deny[i].name,
                        p->deny[i].version ? p->deny[i].version : "");
    /* A short fingerprint (FNV): it only has to differ, it need not be secure. */
    {
        uint64_t h = 0xcbf29ce484222325;

        for (size_t i = 0; i < b.len; i++)
            h = (h ^ (unsigned char)buf_data(&b)[i]) * 0x100000001b3;
        free(p->print);
        p->print = xasprintf("%016llx", (unsigned long long)h);
    }
    buf_done(&b);
}

void policy_done(struct policy *p)
{
    for (size_t i = 0; i < p->n_deny; i++) {
        free(p->deny[i].name);
        free(p->deny[i].version);
    }
    free(p->deny);
    free(p->print);
    *p = (struct policy){0};
}

static bool policy_deny_matches(const struct policy_deny *d, enum ecosystem eco, const char *name)
{
    char pattern[NAME_MAX_LEN + 1];

    if (!d->any && d->eco != eco)
        return false;
    snprintf(pattern, sizeof(pattern), "%s", d->name);
    /* PyPI's names are compared in their normal form. A pattern keeps its stars. */
    for (char *s = pattern; *s && eco == ECO_PYPI; s++) {
        if (*s >= 'A' && *s <= 'Z')
            *s = (char)(*s - 'A' + 'a');
        if (*s == '_' || *s == '.')
            *s = '-';
    }
    return name_matches(pattern, name);
}

bool policy_denies_name(const struct policy *p, enum ecosystem eco, const char *name)
{
    for (size_t i = 0; i < p->n_deny; i++)
        if (!p->deny[i].version && policy_deny_matches(&p->deny[i], eco, name))
            return true;
    return false;
}

bool policy_denies(const struct policy *p, const struct policy_item *item, int64_t now,
                   char reason[static POLICY_REASON_MAX])
{
    for (size_t i = 0; i < p->n_deny; i++) {
        const struct policy_deny *d = &p->deny[i];

        if (!policy_deny_matches(d, item->eco, item->name) ||
            (d->version && !STREQ(d->version, item->version)))
            continue;
        snprintf(reason, POLICY_REASON_MAX, "Denied by policy: '%s%s%s' is on the deny list",
                 item->name, d->version ? "==" : "", d->version ? d->version : "");
        return true;
    }
    if (p->min_age == 0 || (item->uploaded >= 0 && now - item->uploaded >= p->min_age))
        return false;
    snprintf(
        reason, POLICY_REASON_MAX,
        item->uploaded < 0
            ? "Denied by policy: '%s' %s has no upload time, so its age is unknown (min_age is "
              "%lld days)"
            : "Denied by policy: '%s' %s is younger than %lld days (min_age)",
        item->name, item->version, (long long)((p->min_age + 86399) / 86400));
    return true;
}

int64_t policy_parse_time(const char *s)
{
    struct tm tm = {0};
    const char *end = s ? strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    time_t t;

    if (!end)
        return -1;
    if (*end == '.')
        end += 1 + strspn(end + 1, "0123456789");
    if (!STREQ(end, "Z") && !STREQ(end, "+00:00") && *end)
        return -1;
    t = timegm(&tm);
    return t < 0 ? -1 : (int64_t)t;
}
