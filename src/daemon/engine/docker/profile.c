/*
 * Engines hand each entry to libseccomp as a rule that allows or refuses; entries of one call are
 * alternatives, and comparisons in one entry must all hold. An argument may be compared but once in
 * an entry, so "none of these values" is written as all the prefixes of bits that lead away from
 * them. All comparisons are masked to the low word: see struct seccomp_rule.
 */
#include "daemon/engine/docker/profile.h"

#include <errno.h>

#include "lib/base/json.h"
#include "lib/os/seccomp-table.h"

#define WORD 0xffffffffU

static json_t *profile_compare(unsigned arg, uint32_t mask, uint32_t value)
{
    return json_pack("{s:i, s:I, s:I, s:s}", "index", (int)arg, "value", (json_int_t)mask,
                     "valueTwo", (json_int_t)value, "op", "SCMP_CMP_MASKED_EQ");
}

/* Takes the two: names, and comparisons or NULL. 0: allowed. */
static void profile_add(json_t *to, int errnum, json_t *names, json_t *args)
{
    json_t *entry = json_pack("{s:o, s:s}", "names", names, "action",
                              errnum ? "SCMP_ACT_ERRNO" : "SCMP_ACT_ALLOW");

    if (errnum)
        json_object_set_new(entry, "errnoRet", json_integer(errnum));
    if (args)
        json_object_set_new(entry, "args", args);
    json_array_append_new(to, entry);
}

static json_t *profile_name_of(const struct seccomp_call *c)
{
    return json_pack("[s]", c->name);
}

/* ---- calls with conditions ---- */

/* Every value but the rule's own that begins with these bits, of which `bit` is the lowest. */
static void profile_add_others(json_t *to, const struct seccomp_call *c, uint32_t prefix, int bit)
{
    const struct seccomp_rule *r = c->rule;
    uint32_t mask = WORD << bit;

    for (size_t i = 0; i < r->n; i++)
        if ((r->values[i] & mask) == prefix) {
            if (bit == 0)
                return;
            profile_add_others(to, c, prefix, bit - 1);
            profile_add_others(to, c, prefix | 1U << (bit - 1), bit - 1);
            return;
        }
    profile_add(to, 0, profile_name_of(c), json_pack("[o]", profile_compare(r->arg, mask, prefix)));
}

static void profile_add_none_of(json_t *to, const struct seccomp_call *c)
{
    profile_add_others(to, c, 0, 31);
    profile_add_others(to, c, 1U << 31, 31);
    for (size_t i = 0; i < c->rule->n; i++)
        profile_add(to, c->rule->errnum, profile_name_of(c),
                    json_pack("[o]", profile_compare(c->rule->arg, WORD, c->rule->values[i])));
}

static void profile_add_no_bits(json_t *to, const struct seccomp_call *c)
{
    uint32_t bits = c->rule->values[0];

    profile_add(to, 0, profile_name_of(c),
                json_pack("[o]", profile_compare(c->rule->arg, bits, 0)));
    for (uint32_t bit = 1; bit; bit <<= 1)
        if (bits & bit)
            profile_add(to, c->rule->errnum, profile_name_of(c),
                        json_pack("[o]", profile_compare(c->rule->arg, bit, bit)));
}

static void profile_add_one_of(json_t *to, const struct seccomp_call *c)
{
    for (size_t i = 0; i < c->rule->n; i++)
        profile_add(to, 0, profile_name_of(c),
                    json_pack("[o]", profile_compare(c->rule->arg, WORD, c->rule->values[i])));
}

static void profile_add_by_rule(json_t *to, const struct seccomp_call *c)
{
    switch (c->rule->test) {
    case CALL_NO_BITS:
        profile_add_no_bits(to, c);
        break;
    case CALL_NONE_OF:
        profile_add_none_of(to, c);
        break;
    case CALL_ONE_OF:
        profile_add_one_of(to, c);
        break;
    }
}

static void profile_add_sockets(json_t *to, const struct seccomp_call *c)
{
    const struct seccomp_socket *s;

    for (size_t i = 0; (s = seccomp_socket_at(i)); i++) {
        if (s->n == 0)
            profile_add(to, 0, profile_name_of(c),
                        json_pack("[o]", profile_compare(0, WORD, s->family)));
        for (size_t j = 0; j < s->n; j++)
            profile_add(to, 0, profile_name_of(c),
                        json_pack("[oo]", profile_compare(0, WORD, s->family),
                                  profile_compare(2, WORD, s->protocols[j])));
    }
}

/* ---- all ---- */

static json_t *profile_names_with(enum seccomp_verdict verdict, int errnum)
{
    json_t *names = json_array();
    const struct seccomp_call *c;

    for (size_t i = 0; (c = seccomp_call_at(i)); i++)
        if (c->verdict == verdict && c->errnum == errnum)
            json_array_append_new(names, json_string(c->name));
    return names;
}

char *profile_text(void)
{
    _cleanup_json_ json_t *doc = NULL;
    json_t *entries = json_array();
    const struct seccomp_call *c;

    profile_add(entries, 0, profile_names_with(CALL_ALLOW, 0), NULL);
    profile_add(entries, EPERM, profile_names_with(CALL_REFUSE, EPERM), NULL);
    /* Spelled out for engines that do not know the default below: libc must fall back. */
    profile_add(entries, ENOSYS, profile_names_with(CALL_REFUSE, ENOSYS), NULL);
    for (size_t i = 0; (c = seccomp_call_at(i)); i++) {
        if (c->verdict == CALL_ARGS)
            profile_add_by_rule(entries, c);
        else if (c->verdict == CALL_SOCKET)
            profile_add_sockets(entries, c);
    }
    doc = json_pack("{s:s, s:i, s:o}", "defaultAction", "SCMP_ACT_ERRNO", "defaultErrnoRet", ENOSYS,
                    "syscalls", entries);
    return json_to_text(doc, true);
}
